/* q4_0: 4 bits, blocks of 32 with an f16 scale. Encoding maps the number of the largest magnitude to -8,
 * whatever its sign. */
#include "dtype/q4_0.h"

#include "dtype/close.h"
#include "dtype/dtype.h"
#include "dtype/quant.h"

enum { HALF = KV_Q4_0_ELEMS / 2 };

static void decode(float *dst, const void *src, int64_t n) {
    const kv_q4_0_block *block = src;
    for (int64_t b = 0; b < n / KV_Q4_0_ELEMS; b++, block++, dst += KV_Q4_0_ELEMS) {
        float scale = kv_f16_to_f32(block->scale);
        for (int i = 0; i < HALF; i++) {
            dst[i] = scale * (float)((block->quants[i] & 15) - 8);
            dst[i + HALF] = scale * (float)((block->quants[i] >> 4) - 8);
        }
    }
}

static void encode(void *dst, const float *src, int64_t n) {
    kv_q4_0_block *block = dst;
    for (int64_t b = 0; b < n / KV_Q4_0_ELEMS; b++, block++, src += KV_Q4_0_ELEMS) {
        float scale = kv_quant_extreme(src, KV_Q4_0_ELEMS) / -8.0f, inverse = scale != 0 ? 1.0f / scale : 0;
        for (int i = 0; i < HALF; i++) {
            int32_t low = kv_quant_cut(src[i] * inverse + 8.5f, 0, 15);
            int32_t high = kv_quant_cut(src[i + HALF] * inverse + 8.5f, 0, 15);
            block->quants[i] = (uint8_t)(low | high << 4);
        }
        block->scale = kv_quant_f16(scale);
    }
}

static void pack(void *dst, const kv_close_code *code) {
    kv_q4_0_block *block = dst;
    block->scale = code->first;
    kv_pack_nibbles(block->quants, code->quants);
}

const kv_close_format kv_close_q4_0 = {
    .kind = KV_CLOSE_SCALE,
    .n_levels = 16,
    .lowest = -8,
    .tries = {{0.91f, 0.93f, 0.95f, 0.97f, 0.99f, 1.01f, 1.03f, 1.11f, 1.15f, -0.9f, -0.93f, -0.95f, -0.97f,
               -0.99f, -1.01f, -1.04f}},
    .block_bytes = sizeof(kv_q4_0_block),
    .pack = pack,
};

static void encode_close(void *dst, const float *src, int64_t n) {
    kv_close_encode(dst, src, n, &kv_close_q4_0);
}

const kv_dtype kv_dtype_q4_0 = {
    .name = "q4_0",
    .gguf_id = 2,
    .block_elems = KV_Q4_0_ELEMS,
    .block_bytes = sizeof(kv_q4_0_block),
    .n_planes = 2,
    .plane_bytes = {2, KV_Q4_0_ELEMS / 2},
    .decode = decode,
    .encode = encode,
    .encode_close = encode_close,
    .act_8bit = true,
    .caches = true,
};
