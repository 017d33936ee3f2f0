/* n6.h: the block of the n6 dtype, shared with the kernels that read it. */
#pragma once

#include "dtype/shift.h"

enum { KV_N6_ELEMS = 32 };

#define KV_N6_UNIT 1.5f

/* x[i] = scale * (q[i] - 31.5 + KV_N6_UNIT * shift), scale and shift from `head` (shift.h). The four low bits
 * of q[i] are the low nibble of low[i] for i < 16, the high nibble of low[i - 16] else; with i = 8 k + j (k <
 * 4, j < 8) the two high bits are pair k, from the lowest, of high[j]. */
typedef struct __attribute__((packed)) kv_n6_block {
    uint16_t head;
    uint8_t high[KV_N6_ELEMS / 4];
    uint8_t low[KV_N6_ELEMS / 2];
} kv_n6_block;
