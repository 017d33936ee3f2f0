/* decode_supers_vec.h: decode of the formats in blocks of 256, with the operations of the scalar decoders in
 * the same order. */
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/vec.h"
#include "dtype/q4_k.h"
#include "dtype/q5_k.h"
#include "dtype/q6_k.h"

static inline float kv_half_to_float(uint16_t h) { return kv_vec_first_lane(kv_vec_set_half(h)); }

/* Nibble number `nibble` of KV_LANES bytes. */
static inline kv_vec_int kv_vec_nibble(const uint8_t *p, int nibble) {
    return kv_vec_int_and(kv_vec_int_shift_right_by(kv_vec_load_u8(p), 4 * nibble), kv_vec_int_set(15));
}

/* q4_k, and q5_k where there are high bits. */
KV_TEMPLATE void kv_decode_affine_super(float *dst, uint16_t scale_half, uint16_t min_half,
                                        const uint8_t scales[12], const uint8_t *quants,
                                        const uint8_t *high) {
    const float scale = kv_half_to_float(scale_half), min = kv_half_to_float(min_half);
    uint8_t s[KV_Q4_K_SUBS], m[KV_Q4_K_SUBS];
    kv_q4_k_scales(s, m, scales);
    for (int sub = 0; sub < KV_Q4_K_SUBS; sub++, dst += 32) {
        const kv_vec factor = kv_vec_set(scale * (float)s[sub]), offset = kv_vec_set(min * (float)m[sub]);
        for (int l = 0; l < 32; l += KV_LANES) {
            kv_vec_int q = kv_vec_nibble(quants + sub / 2 * 32 + l, sub % 2);
            if (high) {
                kv_vec_int fifth = kv_vec_int_shift_right_by(kv_vec_load_u8(high + l), sub);
                q = kv_vec_int_or(q, kv_vec_int_shift_left(kv_vec_int_and(fifth, kv_vec_int_set(1)), 4));
            }
            kv_vec_store(dst + l, kv_vec_sub(kv_vec_mul(factor, kv_vec_from_int(q)), offset));
        }
    }
}

static inline void kv_decode_super_q4_k(float *dst, const void *src) {
    const kv_q4_k_block *block = src;
    kv_decode_affine_super(dst, block->scale, block->min, block->scales, block->quants, NULL);
}

static inline void kv_decode_super_q5_k(float *dst, const void *src) {
    const kv_q5_k_block *block = src;
    kv_decode_affine_super(dst, block->scale, block->min, block->scales, block->quants, block->high);
}

static inline void kv_decode_super_q6_k(float *dst, const void *src) {
    const kv_q6_k_block *block = src;
    const float scale = kv_half_to_float(block->scale);
    for (int i = 0; i < KV_Q6_K_ELEMS; i += KV_LANES) {
        const int half = i / 128, k = i / 32 % 4, l = i % 32;
        kv_vec_int low = kv_vec_nibble(block->low + 64 * half + 32 * (k % 2) + l, k / 2);
        kv_vec_int high = kv_vec_int_shift_right_by(kv_vec_load_u8(block->high + 32 * half + l), 2 * k);
        high = kv_vec_int_shift_left(kv_vec_int_and(high, kv_vec_int_set(3)), 4);
        kv_vec level = kv_vec_from_int(kv_vec_int_sub(kv_vec_int_or(low, high), kv_vec_int_set(32)));
        kv_vec_store(dst + i, kv_vec_mul(kv_vec_set(scale * (float)block->scales[i / 16]), level));
    }
}

/* Defines kv_decode_<dtype>_<isa>. */
#define KV_DECODE_SUPERS(dtype, isa)                                               \
    kv_decode_fn kv_decode_##dtype##_##isa;                                        \
    void kv_decode_##dtype##_##isa(float *dst, const void *src, int64_t n) {       \
        const kv_##dtype##_block *block = src;                                     \
        for (; n > 0; n -= 256, dst += 256) kv_decode_super_##dtype(dst, block++); \
    }
