/* a8.h: the block of the a8 dtype, shared with the kernels that read it. */
#pragma once

#include <stdint.h>

enum { KV_A8_ELEMS = 32 };

/* 32 activations: x[i] = scale * quants[i]; sum = scale * (quants[0] + ... + quants[31]), which weights with
 * an offset multiply. */
typedef struct kv_a8_block {
    float scale, sum;
    int8_t quants[KV_A8_ELEMS];
} kv_a8_block;
