/* iq4_nl.h: the block of the iq4_nl dtype and the codebook that iq4_xs has too, shared with the kernels that
 * read them. */
#pragma once

#include <stdint.h>

enum { KV_IQ4_NL_ELEMS = 32 };

/* The sixteen levels, denser around zero where weights are. */
#define KV_IQ4_LEVELS \
    { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 }

/* x[i] = scale * level[q[i]]; q[i] is the low nibble of quants[i] for i < 16, the high nibble of quants[i -
 * 16] else. */
typedef struct __attribute__((packed)) kv_iq4_nl_block {
    uint16_t scale; /* f16 */
    uint8_t quants[KV_IQ4_NL_ELEMS / 2];
} kv_iq4_nl_block;
