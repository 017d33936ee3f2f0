/* q5_1.h: the block of the q5_1 dtype, shared with the kernels that read it. */
#pragma once

#include <stdint.h>

enum { KV_Q5_1_ELEMS = 32 };

/* x[i] = scale * q[i] + min; the four low bits of q[i] are the low nibble of quants[i] for i < 16, the high
 * nibble of quants[i - 16] else; the fifth is bit i of `high`. */
typedef struct __attribute__((packed)) kv_q5_1_block {
    uint16_t scale, min; /* f16 */
    uint32_t high;
    uint8_t quants[KV_Q5_1_ELEMS / 2];
} kv_q5_1_block;
