/* q4_1: 4 bits, blocks of 32 with scale and minimum in f16. */
#include "dtype/q4_1.h"

#include "dtype/close.h"
#include "dtype/dtype.h"
#include "dtype/quant.h"

enum { HALF = KV_Q4_1_ELEMS / 2 };

static void decode(float *dst, const void *src, int64_t n) {
    const kv_q4_1_block *block = src;
    for (int64_t b = 0; b < n / KV_Q4_1_ELEMS; b++, block++, dst += KV_Q4_1_ELEMS) {
        float scale = kv_f16_to_f32(block->scale), min = kv_f16_to_f32(block->min);
        for (int i = 0; i < HALF; i++) {
            dst[i] = scale * (float)(block->quants[i] & 15) + min;
            dst[i + HALF] = scale * (float)(block->quants[i] >> 4) + min;
        }
    }
}

static void encode(void *dst, const float *src, int64_t n) {
    kv_q4_1_block *block = dst;
    for (int64_t b = 0; b < n / KV_Q4_1_ELEMS; b++, block++, src += KV_Q4_1_ELEMS) {
        float min, max;
        kv_quant_range(&min, &max, src, KV_Q4_1_ELEMS);
        float scale = (max - min) / 15.0f, inverse = scale != 0 ? 1.0f / scale : 0;
        for (int i = 0; i < HALF; i++) {
            int32_t low = kv_quant_cut((src[i] - min) * inverse + 0.5f, 0, 15);
            int32_t high = kv_quant_cut((src[i + HALF] - min) * inverse + 0.5f, 0, 15);
            block->quants[i] = (uint8_t)(low | high << 4);
        }
        block->scale = kv_quant_f16(scale);
        block->min = kv_quant_f16(min);
    }
}

static void pack(void *dst, const kv_close_code *code) {
    kv_q4_1_block *block = dst;
    block->scale = code->first;
    block->min = code->second;
    kv_pack_nibbles(block->quants, code->quants);
}

const kv_close_format kv_close_q4_1 = {
    .kind = KV_CLOSE_MIN,
    .n_levels = 16,
    .tries = {{-0.03f, -0.02f, -0.01f, -0.01f, 0, 0, 0, 0.01f, 0.01f, 0.01f, 0.02f, 0.02f, 0.02f, 0.03f,
               0.03f, 0.04f},
              {0.01f, 0.03f, 0, 0.02f, -0.01f, 0.02f, 0.04f, -0.02f, 0.01f, 0.03f, -0.01f, 0, 0.02f, -0.02f,
               0.01f, 0}},
    .block_bytes = sizeof(kv_q4_1_block),
    .pack = pack,
};

static void encode_close(void *dst, const float *src, int64_t n) {
    kv_close_encode(dst, src, n, &kv_close_q4_1);
}

const kv_dtype kv_dtype_q4_1 = {
    .name = "q4_1",
    .gguf_id = 3,
    .block_elems = KV_Q4_1_ELEMS,
    .block_bytes = sizeof(kv_q4_1_block),
    .n_planes = 2,
    .plane_bytes = {4, KV_Q4_1_ELEMS / 2},
    .decode = decode,
    .encode = encode,
    .encode_close = encode_close,
    .act_8bit = true,
    .caches = true,
};
