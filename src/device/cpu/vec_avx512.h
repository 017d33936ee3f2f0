/* vec_avx512.h: the vectors of vec.h as 512-bit registers. Needs F, BW, DQ and VL. */
#pragma once

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { KV_LANES = 16 };

typedef __m512 kv_vec;
typedef __m512i kv_vec_int;

static inline __mmask16 kv_vec_first(int32_t n) { return (__mmask16)((1u << n) - 1); }

/* ---- loads and stores, any alignment */

static inline kv_vec kv_vec_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void kv_vec_store(float *p, kv_vec v) { _mm512_storeu_ps(p, v); }
static inline kv_vec kv_vec_load_n(const float *p, int32_t n) {
    return _mm512_maskz_loadu_ps(kv_vec_first(n), p);
}
static inline void kv_vec_store_n(float *p, kv_vec v, int32_t n) {
    _mm512_mask_storeu_ps(p, kv_vec_first(n), v);
}

static inline kv_vec kv_vec_load_half(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
static inline kv_vec kv_vec_load_half_n(const void *p, int32_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(kv_vec_first(n), p));
}
static inline void kv_vec_store_half_n(void *p, kv_vec v, int32_t n) {
    _mm256_mask_storeu_epi16(p, kv_vec_first(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
/* Unsigned 16-bit integers, widened; and the low 16 bits of each lane, which must fit. */
static inline kv_vec_int kv_vec_load_u16_n(const void *p, int32_t n) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(kv_vec_first(n), p));
}
static inline void kv_vec_store_u16_n(void *p, kv_vec_int v, int32_t n) {
    _mm512_mask_cvtepi32_storeu_epi16(p, kv_vec_first(n), v);
}
static inline float kv_vec_first_lane(kv_vec v) { return _mm512_cvtss_f32(v); }
/* One number of 16 bits, in every lane. */
static inline kv_vec kv_vec_set_half(uint16_t h) { return _mm512_cvtph_ps(_mm256_set1_epi16((short)h)); }
/* f16 numbers in the low halves of the lanes. */
static inline kv_vec kv_vec_from_half_bits(kv_vec_int v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
/* KV_LANES bytes, widened. */
static inline kv_vec_int kv_vec_load_i8(const void *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(p)); }
static inline kv_vec_int kv_vec_load_u8(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }

/* 32 integers from -128 to 127 as bytes. */
static inline void kv_vec_store_i8x32(int8_t *p, const kv_vec_int v[32 / KV_LANES]) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(v[0]));
    _mm_storeu_si128((__m128i *)p + 1, _mm512_cvtepi32_epi8(v[1]));
}

/* Pair n of bits, from the lowest, of each of 8 bytes; where there are more lanes, the next pairs too. */
static inline kv_vec_int kv_vec_load_pairs(const uint8_t p[8], int n) {
    int64_t eight;
    memcpy(&eight, p, sizeof eight);
    __m512i bytes = _mm512_cvtepu8_epi32(_mm_set1_epi64x(eight));
    __m512i by = _mm512_inserti64x4(_mm512_set1_epi32(2 * n + 2), _mm256_set1_epi32(2 * n), 0);
    return _mm512_and_si512(_mm512_srlv_epi32(bytes, by), _mm512_set1_epi32(3));
}
/* table[at], 0 <= at < 16 */
static inline kv_vec kv_vec_look_up(const float table[16], kv_vec_int at) {
    return _mm512_permutexvar_ps(at, _mm512_loadu_ps(table));
}

/* ---- arithmetic */

static inline kv_vec kv_vec_set(float x) { return _mm512_set1_ps(x); }
static inline kv_vec kv_vec_add(kv_vec a, kv_vec b) { return _mm512_add_ps(a, b); }
static inline kv_vec kv_vec_sub(kv_vec a, kv_vec b) { return _mm512_sub_ps(a, b); }
static inline kv_vec kv_vec_mul(kv_vec a, kv_vec b) { return _mm512_mul_ps(a, b); }
static inline kv_vec kv_vec_div(kv_vec a, kv_vec b) { return _mm512_div_ps(a, b); }
/* a * b + c, rounded once */
static inline kv_vec kv_vec_fma(kv_vec a, kv_vec b, kv_vec c) { return _mm512_fmadd_ps(a, b, c); }
/* b where either is NaN */
static inline kv_vec kv_vec_max(kv_vec a, kv_vec b) { return _mm512_max_ps(a, b); }
static inline kv_vec kv_vec_min(kv_vec a, kv_vec b) { return _mm512_min_ps(a, b); }
static inline kv_vec kv_vec_abs(kv_vec a) { return _mm512_abs_ps(a); }
/* |a| with the sign of `sign`, a >= 0 */
static inline kv_vec kv_vec_copysign(kv_vec a, kv_vec sign) {
    return _mm512_or_ps(a, _mm512_and_ps(_mm512_set1_ps(-0.0f), sign));
}
/* The whole number nearest to a, half to even. */
static inline kv_vec kv_vec_round(kv_vec a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a * 2^n for whole n up to 128, a near 1: Inf where it is too large, 0 or right where it is subnormal. */
static inline kv_vec kv_vec_scale(kv_vec a, kv_vec n) { return _mm512_scalef_ps(a, n); }

static inline kv_vec_int kv_vec_int_round(kv_vec a) { return _mm512_cvtps_epi32(a); }
static inline kv_vec_int kv_vec_int_cut(kv_vec a) { return _mm512_cvttps_epi32(a); }
static inline kv_vec kv_vec_from_int(kv_vec_int a) { return _mm512_cvtepi32_ps(a); }
static inline kv_vec_int kv_vec_int_set(int32_t x) { return _mm512_set1_epi32(x); }
static inline kv_vec_int kv_vec_int_add(kv_vec_int a, kv_vec_int b) { return _mm512_add_epi32(a, b); }
static inline kv_vec_int kv_vec_int_sub(kv_vec_int a, kv_vec_int b) { return _mm512_sub_epi32(a, b); }
static inline kv_vec_int kv_vec_int_max(kv_vec_int a, kv_vec_int b) { return _mm512_max_epi32(a, b); }
static inline kv_vec_int kv_vec_int_and(kv_vec_int a, kv_vec_int b) { return _mm512_and_si512(a, b); }
static inline kv_vec_int kv_vec_int_or(kv_vec_int a, kv_vec_int b) { return _mm512_or_si512(a, b); }
static inline kv_vec_int kv_vec_int_shift_left(kv_vec_int a, int n) {
    return _mm512_slli_epi32(a, (unsigned)n);
}
static inline kv_vec_int kv_vec_int_shift_right(kv_vec_int a, int n) {
    return _mm512_srli_epi32(a, (unsigned)n);
}
/* By a number that need not be a constant. */
static inline kv_vec_int kv_vec_int_shift_right_by(kv_vec_int a, int n) {
    return _mm512_srl_epi32(a, _mm_cvtsi32_si128(n));
}
/* Lane i is bit i. */
static inline kv_vec_int kv_vec_int_from_bits(uint32_t bits) {
    return _mm512_maskz_set1_epi32((__mmask16)bits, 1);
}
static inline kv_vec_int kv_vec_bits(kv_vec a) { return _mm512_castps_si512(a); }
static inline kv_vec kv_vec_from_bits(kv_vec_int a) { return _mm512_castsi512_ps(a); }
/* b in the lanes where a is NaN, else c */
static inline kv_vec_int kv_vec_if_nan(kv_vec a, kv_vec_int b, kv_vec_int c) {
    return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), c, b);
}

/* All bits set in the lanes where a is not 0. */
static inline kv_vec_int kv_vec_int_where(kv_vec_int a) {
    return _mm512_movm_epi32(_mm512_test_epi32_mask(a, a));
}

/* c in the lanes where a > b, else d */
static inline kv_vec kv_vec_if_above(kv_vec a, kv_vec b, kv_vec c, kv_vec d) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), d, c);
}

/* ---- across lanes */

static inline bool kv_vec_int_any_negative(kv_vec_int v) { return _mm512_movepi32_mask(v) != 0; }
/* Lane i of every group of four is v[i] folded to one number. */
typedef kv_vec_int kv_vec_int_fold_fn(kv_vec_int a, kv_vec_int b);
static inline __attribute__((always_inline)) kv_vec_int kv_vec_int_fold_4(const kv_vec_int v[4],
                                                                          kv_vec_int_fold_fn *fold) {
    kv_vec_int ab = fold(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    kv_vec_int cd = fold(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    kv_vec_int all = fold(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    all = fold(all, _mm512_shuffle_i32x4(all, all, 0x4e));
    return fold(all, _mm512_shuffle_i32x4(all, all, 0xb1));
}

static inline float kv_vec_sum(kv_vec v) { return _mm512_reduce_add_ps(v); }
static inline int32_t kv_vec_int_sum(kv_vec_int v) { return _mm512_reduce_add_epi32(v); }
static inline int32_t kv_vec_int_largest(kv_vec_int v) { return _mm512_reduce_max_epi32(v); }

/* Sums in double. */
typedef struct kv_vec_wide {
    __m512d low, high;
} kv_vec_wide;
static inline kv_vec_wide kv_vec_wide_add_squares(kv_vec_wide sum, kv_vec v) {
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(v)),
            high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
    return (kv_vec_wide){_mm512_fmadd_pd(low, low, sum.low), _mm512_fmadd_pd(high, high, sum.high)};
}
static inline double kv_vec_wide_sum(kv_vec_wide sum) {
    return _mm512_reduce_add_pd(_mm512_add_pd(sum.low, sum.high));
}

/* [a0 + a2, b0 + b2, a1 + a3, b1 + b3] in every group of four lanes */
static inline kv_vec kv_vec_fold_2(kv_vec a, kv_vec b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}
/* [sum of a, b, c, d] of every group of four lanes */
static inline kv_vec kv_vec_fold_4(kv_vec a, kv_vec b, kv_vec c, kv_vec d) {
    __m512d ab = _mm512_castps_pd(kv_vec_fold_2(a, b)), cd = _mm512_castps_pd(kv_vec_fold_2(c, d));
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
}
static inline kv_vec kv_vec_fold_groups(kv_vec a, kv_vec b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
/* Lane i is the sum of v[i]. */
static inline kv_vec kv_vec_sum_each(const kv_vec v[KV_LANES]) {
    kv_vec a =
        kv_vec_fold_groups(kv_vec_fold_4(v[0], v[1], v[2], v[3]), kv_vec_fold_4(v[4], v[5], v[6], v[7]));
    kv_vec b = kv_vec_fold_groups(kv_vec_fold_4(v[8], v[9], v[10], v[11]),
                                  kv_vec_fold_4(v[12], v[13], v[14], v[15]));
    return kv_vec_fold_groups(a, b);
}

/* Lane i of every group of four in all four. */
#define kv_vec_spread(v, i) _mm512_permute_ps(v, 0x55 * (i))

/* Rows become columns: first 4x4 inside groups of four lanes, then the groups. */
static inline void kv_vec_transpose(kv_vec v[KV_LANES]) {
    kv_vec t[KV_LANES];
    for (int i = 0; i < 16; i += 4) {
        __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(v[i], v[i + 1]));
        __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(v[i], v[i + 1]));
        __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(v[i + 2], v[i + 3]));
        __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(v[i + 2], v[i + 3]));
        t[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        t[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        t[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        t[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    for (int i = 0; i < 4; i++) {
        kv_vec a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        kv_vec c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88),
               d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        v[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        v[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        v[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        v[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}
