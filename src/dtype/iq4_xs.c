/* iq4_xs: 4 bits that name one of sixteen levels, blocks of 256; sub-blocks of 32 have a signed scale of 6
 * bits. */
#include "dtype/iq4_xs.h"

#include "dtype/dtype.h"
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

const kv_dtype kv_dtype_iq4_xs = {
    .name = "iq4_xs",
    .gguf_id = 23,
    .block_elems = KV_IQ4_XS_ELEMS,
    .block_bytes = sizeof(kv_iq4_xs_block),
    .n_planes = 4,
    .plane_bytes = {2, 2, 4, KV_IQ4_XS_ELEMS / 2},
    .decode = decode,
    .act_8bit = true,
};
