/* vec_math.h: functions of a vector. */
#pragma once

#include "device/cpu/vec.h"

/* exp(x), relative error below 2e-7: 0 for -Inf and, in some instruction sets, where exp(x) is subnormal; Inf
 * above 88.37 to 88.73; NaN stays.
 *
 * x = n ln 2 + r with |r| <= ln(2) / 2, ln 2 in two parts so that n ln 2 loses nothing (W. Cody and W. Waite,
 * Software Manual for the Elementary Functions, 1980); exp(r) = 1 + r + r^2 g(r), g of degree 4 with the
 * coefficients of least relative error on that interval (3.6e-9, far below the rounding). */
static inline kv_vec kv_vec_exp(kv_vec x) {
    x = kv_vec_max(kv_vec_set(-104.0f), x); /* exp(-104) is less than half of the smallest number: 0 */
    x = kv_vec_min(kv_vec_set(89.0f), x);
    kv_vec n = kv_vec_round(kv_vec_mul(x, kv_vec_set(0x1.715476p+0f))); /* 1 / ln 2 */
    kv_vec r = kv_vec_fma(n, kv_vec_set(-0x1.62e4p-1f), x);
    r = kv_vec_fma(n, kv_vec_set(-0x1.7f7d1cp-20f), r);
    kv_vec g = kv_vec_fma(kv_vec_set(0x1.6a23dp-10f), r, kv_vec_set(0x1.123a2p-7f));
    g = kv_vec_fma(g, r, kv_vec_set(0x1.5558f2p-5f));
    g = kv_vec_fma(g, r, kv_vec_set(0x1.555492p-3f));
    g = kv_vec_fma(g, r, kv_vec_set(0x1.fffffcp-2f));
    kv_vec small = kv_vec_fma(kv_vec_mul(r, r), g, r);
    return kv_vec_scale(kv_vec_add(small, kv_vec_set(1.0f)), n);
}

/* 1 / (1 + exp(-x)) times y */
static inline kv_vec kv_vec_sigmoid_mul(kv_vec x, kv_vec y) {
    kv_vec e = kv_vec_exp(kv_vec_sub(kv_vec_set(0), x));
    return kv_vec_div(y, kv_vec_add(kv_vec_set(1.0f), e));
}
