/* hadamard.h: the orthogonal Hadamard transform. It spreads what is large in a few numbers over all of a
 * block before they are quantized (as QuaRot, Ashkboos et al. 2024, does), keeps dot products, and is its own
 * inverse. */
#pragma once

#include <stdint.h>

/* The largest power of two that divides n. */
static inline int32_t kv_hadamard_block(int32_t n) { return n & -n; }

/* Transforms blocks of `block` numbers (a power of two that divides n) in place; block 1 changes nothing. */
void kv_hadamard(float *x, int32_t n, int32_t block);
