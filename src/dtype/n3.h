/* n3.h: the block of the n3 dtype, shared with the kernels that read it. */
#pragma once

#include "dtype/shift.h"

enum { KV_N3_ELEMS = 32 };

/* The eight levels that suit normal numbers (Lloyd's method over blocks whose scale and shift are searched
 * for), and the unit of shifts. In sixteen places, as byte shuffles want them. */
#define KV_N3_LEVELS \
    { -127, -79, -45, -15, 15, 45, 79, 127, -127, -79, -45, -15, 15, 45, 79, 127 }
#define KV_N3_UNIT 6.0f

/* x[i] = scale * (level[q[i]] + KV_N3_UNIT * shift), scale and shift from `head` (shift.h). With i = 8 k + j
 * (k < 4, j < 8) the two low bits of q[i] are pair k, from the lowest, of low[j]; the third is bit i of
 * `high`. */
typedef struct __attribute__((packed)) kv_n3_block {
    uint16_t head;
    uint32_t high;
    uint8_t low[KV_N3_ELEMS / 4];
} kv_n3_block;
