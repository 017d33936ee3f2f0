/* q4_1.h: the block of the q4_1 dtype, shared with the kernels that read it. */
#pragma once

#include <stdint.h>

enum { KV_Q4_1_ELEMS = 32 };

/* x[i] = scale * q[i] + min; q[i] is the low nibble of quants[i] for i < 16, the high nibble of quants[i -
 * 16] else. */
typedef struct __attribute__((packed)) kv_q4_1_block {
    uint16_t scale, min; /* f16 */
    uint8_t quants[KV_Q4_1_ELEMS / 2];
} kv_q4_1_block;
