/* q2_k: 2 bits, blocks of 256; sub-blocks of 16 have a scale and a minimum of 4 bits each. */
#include "dtype/q2_k.h"

#include "dtype/dtype.h"
#include "dtype/fit.h"
#include "dtype/quant.h"

static void decode_block(float *dst, const kv_q2_k_block *block) {
    float scale = kv_f16_to_f32(block->scale), min = kv_f16_to_f32(block->min);
    for (int i = 0; i < KV_Q2_K_ELEMS; i++) {
        int half = i / 128, pair = i / 32 % 4;
        float sub_scale = scale * (float)(block->scales[i / 16] & 15),
              sub_min = min * (float)(block->scales[i / 16] >> 4);
        dst[i] = sub_scale * (float)(block->quants[32 * half + i % 32] >> 2 * pair & 3) - sub_min;
    }
}

static void decode(float *dst, const void *src, int64_t n) {
    const kv_q2_k_block *block = src;
    for (int64_t b = 0; b < n / KV_Q2_K_ELEMS; b++) decode_block(dst + b * KV_Q2_K_ELEMS, block + b);
}

static void encode_block(kv_q2_k_block *block, const float *src) {
    static const kv_fit_format format = {.n_subs = 16, .sub_elems = 16, .scale_max = 15, .level_max = 3};
    kv_fit fit;
    kv_fit_affine(&fit, src, &format);
    *block = (kv_q2_k_block){.scale = fit.scale, .min = fit.min};
    for (int i = 0; i < 16; i++) block->scales[i] = (uint8_t)(fit.scales[i] | fit.mins[i] << 4);
    for (int i = 0; i < KV_Q2_K_ELEMS; i++) {
        uint8_t *byte = block->quants + i / 128 * 32 + i % 32;
        *byte = (uint8_t)(*byte | fit.levels[i] << 2 * (i / 32 % 4));
    }
}

static void encode(void *dst, const float *src, int64_t n) {
    kv_q2_k_block *block = dst;
    for (int64_t b = 0; b < n / KV_Q2_K_ELEMS; b++) encode_block(block + b, src + b * KV_Q2_K_ELEMS);
}

const kv_dtype kv_dtype_q2_k = {
    .name = "q2_k",
    .gguf_id = 10,
    .block_elems = KV_Q2_K_ELEMS,
    .block_bytes = sizeof(kv_q2_k_block),
    .n_planes = 3,
    .plane_bytes = {KV_Q2_K_ELEMS / 16, KV_Q2_K_ELEMS / 4, 4},
    .decode = decode,
    .encode = encode,
    .act_8bit = true,
};
