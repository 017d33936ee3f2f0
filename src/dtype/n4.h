/* n4.h: the block of the n4 dtype, shared with the kernels that read it. */
#pragma once

#include "dtype/shift.h"

enum { KV_N4_ELEMS = 32 };

/* The sixteen levels that suit normal numbers (as KV_N3_LEVELS), and the unit of shifts. */
#define KV_N4_LEVELS \
    { -127, -102, -82, -65, -49, -34, -20, -7, 7, 20, 34, 49, 65, 82, 102, 127 }
#define KV_N4_UNIT 6.0f

/* x[i] = scale * (level[q[i]] + KV_N4_UNIT * shift), scale and shift from `head` (shift.h); q[i] is the low
 * nibble of quants[i] for i < 16, the high nibble of quants[i - 16] else. */
typedef struct __attribute__((packed)) kv_n4_block {
    uint16_t head;
    uint8_t quants[KV_N4_ELEMS / 2];
} kv_n4_block;
