/* q5_k.h: the block of the q5_k dtype, shared with the kernels that read it. */
#pragma once

#include "dtype/q4_k.h"

enum { KV_Q5_K_ELEMS = 256 };

/* As q4_k, with a fifth bit of q[i]: bit i / 32 of high[i % 32]. */
typedef struct __attribute__((packed)) kv_q5_k_block {
    uint16_t scale, min; /* f16 */
    uint8_t scales[12];  /* see kv_q4_k_scales */
    uint8_t high[KV_Q5_K_ELEMS / 8];
    uint8_t quants[KV_Q5_K_ELEMS / 2];
} kv_q5_k_block;
