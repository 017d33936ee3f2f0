/* q4_k: 4 bits, blocks of 256; sub-blocks of 32 have a scale and a minimum of 6 bits each. */
#include "dtype/q4_k.h"

#include "dtype/dtype.h"
#include "dtype/fit.h"
#include "dtype/quant.h"

static void decode_block(float *dst, const kv_q4_k_block *block) {
    float scale = kv_f16_to_f32(block->scale), min = kv_f16_to_f32(block->min);
    uint8_t s[KV_Q4_K_SUBS], m[KV_Q4_K_SUBS];
    kv_q4_k_scales(s, m, block->scales);
    for (int i = 0; i < KV_Q4_K_ELEMS; i++) {
        int sub = i / 32, nibble = sub % 2;
        int32_t q = block->quants[sub / 2 * 32 + i % 32] >> 4 * nibble & 15;
        dst[i] = scale * (float)s[sub] * (float)q - min * (float)m[sub];
    }
}

static void decode(float *dst, const void *src, int64_t n) {
    const kv_q4_k_block *block = src;
    for (int64_t b = 0; b < n / KV_Q4_K_ELEMS; b++) decode_block(dst + b * KV_Q4_K_ELEMS, block + b);
}

static void encode_block(kv_q4_k_block *block, const float *src) {
    static const kv_fit_format format = {.n_subs = 8, .sub_elems = 32, .scale_max = 63, .level_max = 15};
    kv_fit fit;
    kv_fit_affine(&fit, src, &format);
    *block = (kv_q4_k_block){.scale = fit.scale, .min = fit.min};
    kv_q4_k_pack_scales(block->scales, fit.scales, fit.mins);
    for (int i = 0; i < KV_Q4_K_ELEMS; i++) {
        uint8_t *byte = block->quants + i / 64 * 32 + i % 32;
        *byte = (uint8_t)(*byte | fit.levels[i] << 4 * (i / 32 % 2));
    }
}

static void encode(void *dst, const float *src, int64_t n) {
    kv_q4_k_block *block = dst;
    for (int64_t b = 0; b < n / KV_Q4_K_ELEMS; b++) encode_block(block + b, src + b * KV_Q4_K_ELEMS);
}

const kv_dtype kv_dtype_q4_k = {
    .name = "q4_k",
    .gguf_id = 12,
    .block_elems = KV_Q4_K_ELEMS,
    .block_bytes = sizeof(kv_q4_k_block),
    .n_planes = 3,
    .plane_bytes = {4, 12, KV_Q4_K_ELEMS / 2},
    .decode = decode,
    .encode = encode,
    .act_8bit = true,
};
