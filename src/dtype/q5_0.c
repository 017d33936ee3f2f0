/* q5_0: 5 bits, blocks of 32 with an f16 scale. Encoding maps the number of the largest magnitude to -16,
 * whatever its sign. */
#include "dtype/q5_0.h"

#include "dtype/close.h"
#include "dtype/dtype.h"
#include "dtype/quant.h"

enum { HALF = KV_Q5_0_ELEMS / 2 };

static void decode(float *dst, const void *src, int64_t n) {
    const kv_q5_0_block *block = src;
    for (int64_t b = 0; b < n / KV_Q5_0_ELEMS; b++, block++, dst += KV_Q5_0_ELEMS) {
        float scale = kv_f16_to_f32(block->scale);
        for (int i = 0; i < HALF; i++) {
            int32_t low = (block->quants[i] & 15) | (int32_t)(block->high >> i & 1) << 4;
            int32_t high = block->quants[i] >> 4 | (int32_t)(block->high >> (i + HALF) & 1) << 4;
            dst[i] = scale * (float)(low - 16);
            dst[i + HALF] = scale * (float)(high - 16);
        }
    }
}

static void encode(void *dst, const float *src, int64_t n) {
    kv_q5_0_block *block = dst;
    for (int64_t b = 0; b < n / KV_Q5_0_ELEMS; b++, block++, src += KV_Q5_0_ELEMS) {
        float scale = kv_quant_extreme(src, KV_Q5_0_ELEMS) / -16.0f, inverse = scale != 0 ? 1.0f / scale : 0;
        uint32_t fifth = 0;
        for (int i = 0; i < HALF; i++) {
            uint32_t low = (uint32_t)kv_quant_cut(src[i] * inverse + 16.5f, 0, 31);
            uint32_t high = (uint32_t)kv_quant_cut(src[i + HALF] * inverse + 16.5f, 0, 31);
            block->quants[i] = (uint8_t)((low & 15) | (high & 15) << 4);
            fifth |= low >> 4 << i | high >> 4 << (i + HALF);
        }
        block->high = fifth;
        block->scale = kv_quant_f16(scale);
    }
}

static void pack(void *dst, const kv_close_code *code) {
    kv_q5_0_block *block = dst;
    block->scale = code->first;
    block->high = kv_pack_bits(code->quants, 4);
    kv_pack_nibbles(block->quants, code->quants);
}

const kv_close_format kv_close_q5_0 = {
    .kind = KV_CLOSE_SCALE,
    .n_levels = 32,
    .lowest = -16,
    .tries = {{0.96f, 0.98f, 0.99f, 1, 1.02f, 1.05f, 1.06f, 1.07f, 1.08f, 1.13f, 1.15f, -0.96f, -0.98f,
               -0.99f, -1, -1.02f}},
    .block_bytes = sizeof(kv_q5_0_block),
    .pack = pack,
};

static void encode_close(void *dst, const float *src, int64_t n) {
    kv_close_encode(dst, src, n, &kv_close_q5_0);
}

const kv_dtype kv_dtype_q5_0 = {
    .name = "q5_0",
    .gguf_id = 6,
    .block_elems = KV_Q5_0_ELEMS,
    .block_bytes = sizeof(kv_q5_0_block),
    .n_planes = 3,
    .plane_bytes = {2, 4, KV_Q5_0_ELEMS / 2},
    .decode = decode,
    .encode = encode,
    .encode_close = encode_close,
    .act_8bit = true,
    .caches = true,
};
