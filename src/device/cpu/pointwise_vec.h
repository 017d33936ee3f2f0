/* pointwise_vec.h: exp_sum, norm and the two gated activations: kernels that pass once or twice over plain
 * f32. */
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/vec_math.h"

#include <math.h>

KV_TEMPLATE float kv_exp_sum_vec(float *p, int32_t n, float max) {
    const kv_vec top = kv_vec_set(max);
    kv_vec sum = kv_vec_set(0);
    int32_t i = 0;
    for (; i + KV_LANES <= n; i += KV_LANES) {
        kv_vec e = kv_vec_exp(kv_vec_sub(kv_vec_load(p + i), top));
        kv_vec_store(p + i, e);
        sum = kv_vec_add(sum, e);
    }
    float total = kv_vec_sum(sum);
    if (i < n) {
        float rest[KV_LANES];
        kv_vec e = kv_vec_exp(kv_vec_sub(kv_vec_load_n(p + i, n - i), top));
        kv_vec_store(rest, e);
        for (int32_t j = 0; i + j < n; j++) {
            p[i + j] = rest[j];
            total += rest[j];
        }
    }
    return total;
}

/* The sum in double: as cheap as anything here, and no square overflows. */
KV_TEMPLATE void kv_norm_vec(float *y, const float *x, const float *w, int64_t n, float eps) {
    kv_vec_wide squares = {0};
    int64_t i = 0;
    for (; i + KV_LANES <= n; i += KV_LANES) squares = kv_vec_wide_add_squares(squares, kv_vec_load(x + i));
    if (i < n) squares = kv_vec_wide_add_squares(squares, kv_vec_load_n(x + i, (int32_t)(n - i)));
    const float factor = (float)(1.0 / sqrt(kv_vec_wide_sum(squares) / (double)n + (double)eps));
    const kv_vec scale = kv_vec_set(factor);
    for (i = 0; i + KV_LANES <= n; i += KV_LANES)
        kv_vec_store(y + i, kv_vec_mul(kv_vec_mul(kv_vec_load(x + i), scale), kv_vec_load(w + i)));
    for (; i < n; i++) y[i] = x[i] * factor * w[i];
}

static inline kv_vec kv_vec_silu_mul(kv_vec gate, kv_vec up) {
    return kv_vec_mul(kv_vec_sigmoid_mul(gate, gate), up);
}

/* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3) */
static inline kv_vec kv_vec_gelu_mul(kv_vec gate, kv_vec up) {
    const kv_vec one = kv_vec_set(1.5957691216057308f), three = kv_vec_set(1.5957691216057308f * 0.044715f);
    kv_vec u = kv_vec_mul(gate, kv_vec_fma(kv_vec_mul(gate, gate), three, one));
    return kv_vec_mul(kv_vec_sigmoid_mul(u, gate), up);
}

KV_TEMPLATE void kv_glu_vec(float *y, const float *gate, const float *up, int64_t n,
                            kv_vec act(kv_vec gate, kv_vec up)) {
    int64_t i = 0;
    for (; i + KV_LANES <= n; i += KV_LANES)
        kv_vec_store(y + i, act(kv_vec_load(gate + i), kv_vec_load(up + i)));
    if (i == n) return;
    int32_t rest = (int32_t)(n - i);
    kv_vec_store_n(y + i, act(kv_vec_load_n(gate + i, rest), kv_vec_load_n(up + i, rest)), rest);
}

/* Defines kv_exp_sum_<isa>, kv_norm_<isa>, kv_glu_silu_<isa> and kv_glu_gelu_<isa>. */
#define KV_POINTWISE(isa)                                                                        \
    kv_exp_sum_fn kv_exp_sum_##isa;                                                              \
    kv_norm_fn kv_norm_##isa;                                                                    \
    kv_glu_fn kv_glu_silu_##isa, kv_glu_gelu_##isa;                                              \
    float kv_exp_sum_##isa(float *p, int32_t n, float max) { return kv_exp_sum_vec(p, n, max); } \
    void kv_norm_##isa(float *y, const float *x, const float *w, int64_t n, float eps) {         \
        kv_norm_vec(y, x, w, n, eps);                                                            \
    }                                                                                            \
    void kv_glu_silu_##isa(float *y, const float *gate, const float *up, int64_t n) {            \
        kv_glu_vec(y, gate, up, n, kv_vec_silu_mul);                                             \
    }                                                                                            \
    void kv_glu_gelu_##isa(float *y, const float *gate, const float *up, int64_t n) {            \
        kv_glu_vec(y, gate, up, n, kv_vec_gelu_mul);                                             \
    }
