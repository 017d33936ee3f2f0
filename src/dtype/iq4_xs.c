/* iq4_xs: 4 bits that name one of sixteen levels, blocks of 256; sub-blocks of 32 have a signed scale of 6
 * bits. */
#include "dtype/iq4_xs.h"

#include "dtype/dtype.h"
#include "dtype/fit.h"
#include "dtype/quant.h"

static const int8_t levels[16] = KV_IQ4_LEVELS;

static void decode_block(float *dst, const kv_iq4_xs_block *block) {
    float scale = kv_f16_to_f32(block->scale);
    for (int i = 0; i < KV_IQ4_XS_ELEMS; i++) {
        int sub = i / 32, nibble = i / 16 % 2;
        int q = block->quants[16 * sub + i % 16] >> 4 * nibble & 15;
        dst[i] = scale * (float)kv_iq4_xs_scale(block, sub) * (float)levels[q];
    }
}

static void decode(float *dst, const void *src, int64_t n) {
    const kv_iq4_xs_block *block = src;
    for (int64_t b = 0; b < n / KV_IQ4_XS_ELEMS; b++) decode_block(dst + b * KV_IQ4_XS_ELEMS, block + b);
}

static void encode_block(kv_iq4_xs_block *block, const float *src) {
    static const kv_fit_format format = {8, 32, .scale_min = -32, .scale_max = 31, -127, 113, levels};
    kv_fit fit;
    kv_fit_symmetric(&fit, src, &format);
    *block = (kv_iq4_xs_block){.scale = fit.scale};
    for (int j = 0; j < 8; j++) {
        int32_t bits = fit.scales[j] + 32;
        block->scales_low[j / 2] = (uint8_t)(block->scales_low[j / 2] | (bits & 15) << 4 * (j % 2));
        block->scales_high = (uint16_t)(block->scales_high | bits >> 4 << 2 * j);
    }
    for (int i = 0; i < KV_IQ4_XS_ELEMS; i++) {
        uint8_t *byte = block->quants + i / 32 * 16 + i % 16;
        *byte = (uint8_t)(*byte | kv_fit_level_index(levels, fit.levels[i]) << 4 * (i / 16 % 2));
    }
}

static void encode(void *dst, const float *src, int64_t n) {
    kv_iq4_xs_block *block = dst;
    for (int64_t b = 0; b < n / KV_IQ4_XS_ELEMS; b++) encode_block(block + b, src + b * KV_IQ4_XS_ELEMS);
}

const kv_dtype kv_dtype_iq4_xs = {
    .name = "iq4_xs",
    .gguf_id = 23,
    .block_elems = KV_IQ4_XS_ELEMS,
    .block_bytes = sizeof(kv_iq4_xs_block),
    .n_planes = 4,
    .plane_bytes = {2, 2, 4, KV_IQ4_XS_ELEMS / 2},
    .decode = decode,
    .encode = encode,
    .act_8bit = true,
};
