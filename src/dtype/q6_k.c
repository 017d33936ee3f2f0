/* q6_k: 6 bits, blocks of 256; sub-blocks of 16 have a signed scale of 8 bits. */
#include "dtype/q6_k.h"

#include "dtype/dtype.h"
#include "dtype/fit.h"
#include "dtype/quant.h"

static void decode_block(float *dst, const kv_q6_k_block *block) {
    float scale = kv_f16_to_f32(block->scale);
    for (int i = 0; i < KV_Q6_K_ELEMS; i++) {
        int half = i / 128, k = i / 32 % 4, l = i % 32;
        int32_t low = block->low[64 * half + 32 * (k % 2) + l] >> 4 * (k / 2) & 15;
        int32_t high = block->high[32 * half + l] >> 2 * k & 3;
        dst[i] = scale * (float)block->scales[i / 16] * (float)((low | high << 4) - 32);
    }
}

static void decode(float *dst, const void *src, int64_t n) {
    const kv_q6_k_block *block = src;
    for (int64_t b = 0; b < n / KV_Q6_K_ELEMS; b++) decode_block(dst + b * KV_Q6_K_ELEMS, block + b);
}

static void encode_block(kv_q6_k_block *block, const float *src) {
    static const kv_fit_format format = {
        16, 16, .scale_min = -128, .scale_max = 127, .level_min = -32, .level_max = 31};
    kv_fit fit;
    kv_fit_symmetric(&fit, src, &format);
    *block = (kv_q6_k_block){.scale = fit.scale};
    memcpy(block->scales, fit.scales, sizeof block->scales);
    for (int i = 0; i < KV_Q6_K_ELEMS; i++) {
        int32_t q = fit.levels[i] + 32, half = i / 128, k = i / 32 % 4, l = i % 32;
        uint8_t *low = block->low + 64 * half + 32 * (k % 2) + l, *high = block->high + 32 * half + l;
        *low = (uint8_t)(*low | (q & 15) << 4 * (k / 2));
        *high = (uint8_t)(*high | q >> 4 << 2 * k);
    }
}

static void encode(void *dst, const float *src, int64_t n) {
    kv_q6_k_block *block = dst;
    for (int64_t b = 0; b < n / KV_Q6_K_ELEMS; b++) encode_block(block + b, src + b * KV_Q6_K_ELEMS);
}

const kv_dtype kv_dtype_q6_k = {
    .name = "q6_k",
    .gguf_id = 14,
    .block_elems = KV_Q6_K_ELEMS,
    .block_bytes = sizeof(kv_q6_k_block),
    .n_planes = 4,
    .plane_bytes = {KV_Q6_K_ELEMS / 2, KV_Q6_K_ELEMS / 4, KV_Q6_K_ELEMS / 16, 2},
    .decode = decode,
    .encode = encode,
    .act_8bit = true,
};
