/* encode_vec.h: f32 to f16, bf16, a8 and q8_0, with the operations of the scalar encoders in the same order.
 * Blocks that are not ordinary (all zero or nearly, Inf or NaN inside) go to the scalar encoder itself. */
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/vec.h"
#include "dtype/a8.h"
#include "dtype/q8_0.h"
#include "dtype/quant.h"

enum { KV_ENCODE_BLOCK = 32, KV_ENCODE_VECS = KV_ENCODE_BLOCK / KV_LANES };

static inline void kv_encode_f16_vec(void *dst, const float *src, int64_t n) {
    uint16_t *out = dst;
    for (; n >= KV_LANES; n -= KV_LANES, src += KV_LANES, out += KV_LANES)
        kv_vec_store_half_n(out, kv_vec_load(src), KV_LANES);
    if (n) kv_vec_store_half_n(out, kv_vec_load_n(src, (int32_t)n), (int32_t)n);
}

static inline kv_vec_int kv_vec_bf16(kv_vec x) {
    kv_vec_int bits = kv_vec_bits(x), high = kv_vec_int_shift_right(bits, 16);
    kv_vec_int odd = kv_vec_int_and(high, kv_vec_int_set(1));
    kv_vec_int rounded = kv_vec_int_add(kv_vec_int_add(bits, kv_vec_int_set(0x7fff)), odd);
    kv_vec_int quiet = kv_vec_int_or(high, kv_vec_int_set(64));
    return kv_vec_if_nan(x, quiet, kv_vec_int_shift_right(rounded, 16));
}

static inline void kv_encode_bf16_vec(void *dst, const float *src, int64_t n) {
    uint16_t *out = dst;
    for (; n >= KV_LANES; n -= KV_LANES, src += KV_LANES, out += KV_LANES)
        kv_vec_store_u16_n(out, kv_vec_bf16(kv_vec_load(src)), KV_LANES);
    if (n) kv_vec_store_u16_n(out, kv_vec_bf16(kv_vec_load_n(src, (int32_t)n)), (int32_t)n);
}

/* The largest magnitude of a block and the block in vectors. As integers, magnitudes are in order, and Inf
 * and NaN come last. */
static inline float kv_encode_load(kv_vec x[KV_ENCODE_VECS], const float *src) {
    kv_vec_int largest = kv_vec_int_set(0);
    for (int i = 0; i < KV_ENCODE_VECS; i++) {
        x[i] = kv_vec_load(src + i * KV_LANES);
        largest = kv_vec_int_max(largest, kv_vec_bits(kv_vec_abs(x[i])));
    }
    return kv_f32_from_bits((uint32_t)kv_vec_int_largest(largest));
}

/* Whether the reciprocal of a scale is finite, and the block too. */
static inline bool kv_encode_ordinary(float largest) {
    return largest >= 0x1p-100f && largest <= 0x1.fffffep127f;
}

static inline void kv_encode_a8_vec(void *dst, const float *src, int64_t n) {
    kv_a8_block *block = dst;
    for (; n > 0; n -= KV_A8_ELEMS, src += KV_A8_ELEMS, block++) {
        kv_vec x[KV_ENCODE_VECS];
        kv_vec_int q[KV_ENCODE_VECS], sum = kv_vec_int_set(0);
        float largest = kv_encode_load(x, src);
        if (!kv_encode_ordinary(largest)) {
            kv_dtype_a8.encode(block, src, KV_A8_ELEMS);
            continue;
        }
        const kv_vec inverse = kv_vec_set(127.0f / largest);
        for (int i = 0; i < KV_ENCODE_VECS; i++) {
            q[i] = kv_vec_int_round(kv_vec_mul(x[i], inverse));
            sum = kv_vec_int_add(sum, q[i]);
        }
        kv_vec_store_i8x32(block->quants, q);
        block->scale = largest / 127.0f;
        block->sum = block->scale * (float)kv_vec_int_sum(sum);
    }
}

/* Half away from zero: adding the largest number below a half, with the sign of y, never carries past the
 * rounding. */
static inline kv_vec_int kv_vec_int_round_away(kv_vec y) {
    return kv_vec_int_cut(kv_vec_add(y, kv_vec_copysign(kv_vec_set(0x1.fffffep-2f), y)));
}

static inline void kv_encode_q8_0_vec(void *dst, const float *src, int64_t n) {
    kv_q8_0_block *block = dst;
    for (; n > 0; n -= KV_Q8_0_ELEMS, src += KV_Q8_0_ELEMS, block++) {
        kv_vec x[KV_ENCODE_VECS];
        kv_vec_int q[KV_ENCODE_VECS];
        float largest = kv_encode_load(x, src);
        if (!kv_encode_ordinary(largest)) {
            kv_dtype_q8_0.encode(block, src, KV_Q8_0_ELEMS);
            continue;
        }
        const float scale = largest / 127.0f;
        const kv_vec inverse = kv_vec_set(1.0f / scale);
        for (int i = 0; i < KV_ENCODE_VECS; i++) q[i] = kv_vec_int_round_away(kv_vec_mul(x[i], inverse));
        kv_vec_store_i8x32(block->quants, q);
        block->scale = kv_quant_f16(scale);
    }
}

/* Defines kv_encode_<dtype>_<isa>. */
#define KV_ENCODE(dtype, isa)                                                \
    kv_encode_fn kv_encode_##dtype##_##isa;                                  \
    void kv_encode_##dtype##_##isa(void *dst, const float *src, int64_t n) { \
        kv_encode_##dtype##_vec(dst, src, n);                                \
    }
