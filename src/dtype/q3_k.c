/* q3_k: 3 bits, blocks of 256; sub-blocks of 16 have a signed scale of 6 bits. */
#include "dtype/q3_k.h"

#include "dtype/dtype.h"
#include "dtype/fit.h"
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

static void pack_scale(uint8_t scales[12], int32_t j, int32_t scale) {
    int32_t bits = scale + 32;
    scales[j % 8] = (uint8_t)(scales[j % 8] | (bits & 15) << 4 * (j / 8));
    scales[8 + j % 4] = (uint8_t)(scales[8 + j % 4] | bits >> 4 << 2 * (j / 4));
}

static void encode_block(kv_q3_k_block *block, const float *src) {
    static const kv_fit_format format = {
        16, 16, .scale_min = -32, .scale_max = 31, .level_min = -4, .level_max = 3};
    kv_fit fit;
    kv_fit_symmetric(&fit, src, &format);
    *block = (kv_q3_k_block){.scale = fit.scale};
    for (int j = 0; j < 16; j++) pack_scale(block->scales, j, fit.scales[j]);
    for (int i = 0; i < KV_Q3_K_ELEMS; i++) {
        int32_t q = fit.levels[i] + 4;
        uint8_t *low = block->quants + i / 128 * 32 + i % 32, *high = block->high + i % 32;
        *low = (uint8_t)(*low | (q & 3) << 2 * (i / 32 % 4));
        *high = (uint8_t)(*high | q >> 2 << i / 32);
    }
}

static void encode(void *dst, const float *src, int64_t n) {
    kv_q3_k_block *block = dst;
    for (int64_t b = 0; b < n / KV_Q3_K_ELEMS; b++) encode_block(block + b, src + b * KV_Q3_K_ELEMS);
}

const kv_dtype kv_dtype_q3_k = {
    .name = "q3_k",
    .gguf_id = 11,
    .block_elems = KV_Q3_K_ELEMS,
    .block_bytes = sizeof(kv_q3_k_block),
    .n_planes = 4,
    .plane_bytes = {KV_Q3_K_ELEMS / 8, KV_Q3_K_ELEMS / 4, 12, 2},
    .decode = decode,
    .encode = encode,
    .act_8bit = true,
};
