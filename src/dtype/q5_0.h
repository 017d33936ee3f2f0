/* q5_0.h: the block of the q5_0 dtype, shared with the kernels that read it. */
#pragma once

#include <stdint.h>

enum { KV_Q5_0_ELEMS = 32 };

/* x[i] = scale * (q[i] - 16); the four low bits of q[i] are the low nibble of quants[i] for i < 16, the high
 * nibble of quants[i - 16] else; the fifth is bit i of `high`. */
typedef struct __attribute__((packed)) kv_q5_0_block {
    uint16_t scale; /* f16 */
    uint32_t high;
    uint8_t quants[KV_Q5_0_ELEMS / 2];
} kv_q5_0_block;
