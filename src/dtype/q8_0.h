/* q8_0.h: the block of the q8_0 dtype, shared with the kernels that read it. */
#pragma once

#include <stdint.h>

enum { KV_Q8_0_ELEMS = 32 };

/* x[i] = scale * quants[i] */
typedef struct __attribute__((packed)) kv_q8_0_block {
    uint16_t scale; /* f16 */
    int8_t quants[KV_Q8_0_ELEMS];
} kv_q8_0_block;
