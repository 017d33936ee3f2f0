/* q3_k.h: the block of the q3_k dtype, shared with the kernels that read it. */
#pragma once

#include <stdint.h>

enum { KV_Q3_K_ELEMS = 256 };

/* Sixteen sub-blocks of 16: x[i] = scale * s[i / 16] * q[i], q from -4 to 3, s from -32 to 31. With
 * i = 128 h + 32 k + l (h < 2, k < 4, l < 32), q[i] is the k-th pair of bits, from the lowest, of quants[32 h
 * + l], less 4 where bit 4 h + k of high[l] is 0. */
typedef struct __attribute__((packed)) kv_q3_k_block {
    uint8_t high[KV_Q3_K_ELEMS / 8];
    uint8_t quants[KV_Q3_K_ELEMS / 4];
    uint8_t scales[12]; /* see kv_q3_k_scale */
    uint16_t scale;     /* f16 */
} kv_q3_k_block;

/* s[j] = scale of sub-block j. Four low bits: low nibbles of scales[0..7], then their high nibbles; two high
 * bits: pair j / 4, from the lowest, of scales[8 + j % 4]. */
static inline int32_t kv_q3_k_scale(const uint8_t scales[12], int32_t j) {
    int32_t low = scales[j % 8] >> 4 * (j / 8) & 15, high = scales[8 + j % 4] >> 2 * (j / 4) & 3;
    return (low | high << 4) - 32;
}
