/* quant.h: what the encoders of the block formats share: rounding that is defined for every float, the
 * extremes of a block, nibbles. Scales are kept finite: one that f16 cannot hold is stored as the largest
 * f16, so that decoding never meets Inf * 0. */
#pragma once

#include "base/half.h"

#include <math.h>
#include <stdint.h>

/* `v` cut to an integer in [lo, hi]; NaN gives lo. */
static inline int32_t kv_quant_cut(float v, int32_t lo, int32_t hi) {
    return !(v > (float)lo) ? lo : v >= (float)hi ? hi : (int32_t)v;
}

/* `v` rounded (half to even) to an integer in [lo, hi]; NaN gives lo. */
static inline int32_t kv_quant_round(float v, int32_t lo, int32_t hi) {
    return !(v > (float)lo) ? lo : v >= (float)hi ? hi : (int32_t)lrintf(v);
}

/* The f16 nearest to x, Inf replaced by the largest finite number. */
static inline uint16_t kv_quant_f16(float x) {
    uint16_t h = kv_f16_from_f32(x);
    return (h & 0x7fffu) == 0x7c00u ? (uint16_t)(h - 1) : h;
}

/* The first of the n numbers with the largest magnitude, with its sign. */
static inline float kv_quant_extreme(const float *x, int32_t n) {
    float extreme = x[0];
    for (int32_t i = 1; i < n; i++)
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    return extreme;
}

static inline void kv_quant_range(float *min, float *max, const float *x, int32_t n) {
    *min = *max = x[0];
    for (int32_t i = 1; i < n; i++) {
        if (x[i] < *min) *min = x[i];
        if (x[i] > *max) *max = x[i];
    }
}
