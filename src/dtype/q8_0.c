/* q8_0: 8 bits, blocks of 32 with an f16 scale. Encoding maps the largest magnitude to 127 and rounds half
 * away from zero. */
#include "dtype/q8_0.h"

#include "dtype/dtype.h"
#include "dtype/quant.h"

static void decode(float *dst, const void *src, int64_t n) {
    const kv_q8_0_block *block = src;
    for (int64_t b = 0; b < n / KV_Q8_0_ELEMS; b++, block++, dst += KV_Q8_0_ELEMS) {
        float scale = kv_f16_to_f32(block->scale);
        for (int i = 0; i < KV_Q8_0_ELEMS; i++) dst[i] = scale * (float)block->quants[i];
    }
}

static void encode(void *dst, const float *src, int64_t n) {
    kv_q8_0_block *block = dst;
    for (int64_t b = 0; b < n / KV_Q8_0_ELEMS; b++, block++, src += KV_Q8_0_ELEMS) {
        float scale = fabsf(kv_quant_extreme(src, KV_Q8_0_ELEMS)) / 127.0f,
              inverse = scale != 0 ? 1.0f / scale : 0;
        for (int i = 0; i < KV_Q8_0_ELEMS; i++)
            block->quants[i] = (int8_t)kv_quant_cut(roundf(src[i] * inverse), -127, 127);
        block->scale = kv_quant_f16(scale);
    }
}

const kv_dtype kv_dtype_q8_0 = {
    .name = "q8_0",
    .gguf_id = 8,
    .block_elems = KV_Q8_0_ELEMS,
    .block_bytes = sizeof(kv_q8_0_block),
    .n_planes = 2,
    .plane_bytes = {2, KV_Q8_0_ELEMS},
    .decode = decode,
    .encode = encode,
    .act_8bit = true,
    .caches = true,
};
