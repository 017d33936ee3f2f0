/* q3_k: 3 bits, blocks of 256; sub-blocks of 16 have a signed scale of 6 bits. */
#include "dtype/q3_k.h"

#include "dtype/dtype.h"
#include "dtype/quant.h"

static void decode_block(float *dst, const kv_q3_k_block *block) {
    float scale = kv_f16_to_f32(block->scale);
    for (int i = 0; i < KV_Q3_K_ELEMS; i++) {
        int half = i / 128, pair = i / 32 % 4, l = i % 32;
        int32_t q = (block->quants[32 * half + l] >> 2 * pair & 3) - (block->high[l] >> (i / 32) & 1 ? 0 : 4);
        dst[i] = scale * (float)kv_q3_k_scale(block->scales, i / 16) * (float)q;
    }
}

static void decode(float *dst, const void *src, int64_t n) {
    const kv_q3_k_block *block = src;
    for (int64_t b = 0; b < n / KV_Q3_K_ELEMS; b++) decode_block(dst + b * KV_Q3_K_ELEMS, block + b);
}

const kv_dtype kv_dtype_q3_k = {
    .name = "q3_k",
    .gguf_id = 11,
    .block_elems = KV_Q3_K_ELEMS,
    .block_bytes = sizeof(kv_q3_k_block),
    .n_planes = 4,
    .plane_bytes = {KV_Q3_K_ELEMS / 8, KV_Q3_K_ELEMS / 4, 12, 2},
    .decode = decode,
    .act_8bit = true,
};
