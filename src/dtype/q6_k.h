/* q6_k.h: the block of the q6_k dtype, shared with the kernels that read it. */
#pragma once

#include <stdint.h>

enum { KV_Q6_K_ELEMS = 256 };

/* Sixteen sub-blocks of 16: x[i] = scale * scales[i / 16] * (q[i] - 32). With i = 128 h + 32 k + l (h < 2, k
 * < 4, l < 32), the four low bits of q[i] are nibble k / 2, from the lowest, of low[64 h + 32 (k % 2) + l],
 * the two high bits pair k of high[32 h + l]. */
typedef struct __attribute__((packed)) kv_q6_k_block {
    uint8_t low[KV_Q6_K_ELEMS / 2];
    uint8_t high[KV_Q6_K_ELEMS / 4];
    int8_t scales[KV_Q6_K_ELEMS / 16];
    uint16_t scale; /* f16 */
} kv_q6_k_block;
