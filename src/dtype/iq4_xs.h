/* iq4_xs.h: the block of the iq4_xs dtype, shared with the kernels that read it. */
#pragma once

#include "dtype/iq4_nl.h"

enum { KV_IQ4_XS_ELEMS = 256 };

/* Eight sub-blocks of 32: x[i] = scale * s[i / 32] * level[q[i]], s from -32 to 31. Sub-block j has its
 * quants at quants[16 j], in the order of iq4_nl. */
typedef struct __attribute__((packed)) kv_iq4_xs_block {
    uint16_t scale;       /* f16 */
    uint16_t scales_high; /* see kv_iq4_xs_scale */
    uint8_t scales_low[4];
    uint8_t quants[KV_IQ4_XS_ELEMS / 2];
} kv_iq4_xs_block;

/* s[j]: four low bits = nibble j of scales_low, two high bits = pair j of scales_high, both from the lowest.
 */
static inline int32_t kv_iq4_xs_scale(const kv_iq4_xs_block *block, int32_t j) {
    int32_t low = block->scales_low[j / 2] >> 4 * (j % 2) & 15, high = block->scales_high >> 2 * j & 3;
    return (low | high << 4) - 32;
}
