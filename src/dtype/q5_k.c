/* q5_k: 5 bits, blocks of 256; sub-blocks of 32 have a scale and a minimum of 6 bits each. */
#include "dtype/q5_k.h"

#include "dtype/dtype.h"
#include "dtype/quant.h"

static void decode_block(float *dst, const kv_q5_k_block *block) {
    float scale = kv_f16_to_f32(block->scale), min = kv_f16_to_f32(block->min);
    uint8_t s[KV_Q4_K_SUBS], m[KV_Q4_K_SUBS];
    kv_q4_k_scales(s, m, block->scales);
    for (int i = 0; i < KV_Q5_K_ELEMS; i++) {
        int sub = i / 32, nibble = sub % 2, l = i % 32;
        int32_t q = (block->quants[sub / 2 * 32 + l] >> 4 * nibble & 15) | (block->high[l] >> sub & 1) << 4;
        dst[i] = scale * (float)s[sub] * (float)q - min * (float)m[sub];
    }
}

static void decode(float *dst, const void *src, int64_t n) {
    const kv_q5_k_block *block = src;
    for (int64_t b = 0; b < n / KV_Q5_K_ELEMS; b++) decode_block(dst + b * KV_Q5_K_ELEMS, block + b);
}

const kv_dtype kv_dtype_q5_k = {
    .name = "q5_k",
    .gguf_id = 13,
    .block_elems = KV_Q5_K_ELEMS,
    .block_bytes = sizeof(kv_q5_k_block),
    .n_planes = 4,
    .plane_bytes = {4, 12, KV_Q5_K_ELEMS / 8, KV_Q5_K_ELEMS / 2},
    .decode = decode,
    .act_8bit = true,
};
