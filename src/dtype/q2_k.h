/* q2_k.h: the block of the q2_k dtype, shared with the kernels that read it. */
#pragma once

#include <stdint.h>

enum { KV_Q2_K_ELEMS = 256 };

/* Sixteen sub-blocks of 16: x[i] = scale * (scales[i / 16] & 15) * q[i] - min * (scales[i / 16] >> 4). With
 * i = 128 h + 32 k + l (h < 2, k < 4, l < 32), q[i] is the k-th pair of bits, from the lowest, of quants[32 h
 * + l]. */
typedef struct __attribute__((packed)) kv_q2_k_block {
    uint8_t scales[KV_Q2_K_ELEMS / 16];
    uint8_t quants[KV_Q2_K_ELEMS / 4];
    uint16_t scale, min; /* f16 */
} kv_q2_k_block;
