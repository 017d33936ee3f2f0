/* iq4_nl: 4 bits that name one of sixteen levels, blocks of 32 with an f16 scale. */
#include "dtype/iq4_nl.h"

#include "dtype/close.h"
#include "dtype/dtype.h"
#include "dtype/fit.h"
#include "dtype/quant.h"

enum { HALF = KV_IQ4_NL_ELEMS / 2 };

static const int8_t levels[16] = KV_IQ4_LEVELS;
static const float close_levels[16] = KV_IQ4_LEVELS;

static void decode(float *dst, const void *src, int64_t n) {
    const kv_iq4_nl_block *block = src;
    for (int64_t b = 0; b < n / KV_IQ4_NL_ELEMS; b++, block++, dst += KV_IQ4_NL_ELEMS) {
        float scale = kv_f16_to_f32(block->scale);
        for (int i = 0; i < HALF; i++) {
            dst[i] = scale * (float)levels[block->quants[i] & 15];
            dst[i + HALF] = scale * (float)levels[block->quants[i] >> 4];
        }
    }
}

static void encode_block(kv_iq4_nl_block *block, const float *src) {
    static const kv_fit_format format = {1,     KV_IQ4_NL_ELEMS, 1, 1, .level_min = -127, .level_max = 113,
                                         levels};
    kv_fit fit;
    kv_fit_symmetric(&fit, src, &format);
    block->scale = fit.scale;
    for (int i = 0; i < HALF; i++) {
        int32_t low = kv_fit_level_index(levels, fit.levels[i]);
        int32_t high = kv_fit_level_index(levels, fit.levels[i + HALF]);
        block->quants[i] = (uint8_t)(low | high << 4);
    }
}

static void encode(void *dst, const float *src, int64_t n) {
    kv_iq4_nl_block *block = dst;
    for (int64_t b = 0; b < n / KV_IQ4_NL_ELEMS; b++) encode_block(block + b, src + b * KV_IQ4_NL_ELEMS);
}

static void pack(void *dst, const kv_close_code *code) {
    kv_iq4_nl_block *block = dst;
    block->scale = code->first;
    kv_pack_nibbles(block->quants, code->quants);
}

const kv_close_format kv_close_iq4_nl = {
    .kind = KV_CLOSE_SCALE,
    .n_levels = 16,
    .lowest = -127,
    .levels = close_levels,
    .tries = {{0.92f, 0.95f, 0.97f, 1, 1.03f, 1.07f, 1.13f, 1.17f, -0.92f, -0.95f, -0.98f, -1.01f, -1.05f,
               -1.09f, -1.13f, -1.18f}},
    .block_bytes = sizeof(kv_iq4_nl_block),
    .pack = pack,
};

static void encode_close(void *dst, const float *src, int64_t n) {
    kv_close_encode(dst, src, n, &kv_close_iq4_nl);
}

const kv_dtype kv_dtype_iq4_nl = {
    .name = "iq4_nl",
    .gguf_id = 20,
    .block_elems = KV_IQ4_NL_ELEMS,
    .block_bytes = sizeof(kv_iq4_nl_block),
    .n_planes = 2,
    .plane_bytes = {2, KV_IQ4_NL_ELEMS / 2},
    .decode = decode,
    .encode = encode,
    .encode_close = encode_close,
    .act_8bit = true,
    .caches = true,
};
