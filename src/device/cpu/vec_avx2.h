/* vec_avx2.h: the vectors of vec.h as 256-bit registers. Needs AVX2, FMA and F16C. */
#pragma once

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { KV_LANES = 8 };

typedef __m256 kv_vec;
typedef __m256i kv_vec_int;

static inline __m256i kv_vec_first(int32_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* ---- loads and stores, any alignment */

static inline kv_vec kv_vec_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void kv_vec_store(float *p, kv_vec v) { _mm256_storeu_ps(p, v); }
static inline kv_vec kv_vec_load_n(const float *p, int32_t n) {
    return _mm256_maskload_ps(p, kv_vec_first(n));
}
static inline void kv_vec_store_n(float *p, kv_vec v, int32_t n) {
    _mm256_maskstore_ps(p, kv_vec_first(n), v);
}

/* There are no masked accesses of 16-bit numbers: parts of a vector go through memory. */
static inline __m128i kv_vec_load_16_n(const void *p, int32_t n) {
    uint16_t part[8] = {0};
    if (n == KV_LANES) return _mm_loadu_si128(p);
    for (int32_t i = 0; i < n; i++) memcpy(part + i, (const uint16_t *)p + i, sizeof *part);
    return _mm_loadu_si128((const __m128i *)part);
}
static inline void kv_vec_store_16_n(void *p, __m128i v, int32_t n) {
    uint16_t part[8];
    if (n == KV_LANES) {
        _mm_storeu_si128(p, v);
        return;
    }
    _mm_storeu_si128((__m128i *)part, v);
    for (int32_t i = 0; i < n; i++) memcpy((uint16_t *)p + i, part + i, sizeof *part);
}

static inline kv_vec kv_vec_load_half(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
static inline kv_vec kv_vec_load_half_n(const void *p, int32_t n) {
    return _mm256_cvtph_ps(kv_vec_load_16_n(p, n));
}
static inline void kv_vec_store_half_n(void *p, kv_vec v, int32_t n) {
    kv_vec_store_16_n(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT), n);
}
/* Unsigned 16-bit integers, widened; and the low 16 bits of each lane, which must fit. */
static inline kv_vec_int kv_vec_load_u16_n(const void *p, int32_t n) {
    return _mm256_cvtepu16_epi32(kv_vec_load_16_n(p, n));
}
static inline void kv_vec_store_u16_n(void *p, kv_vec_int v, int32_t n) {
    kv_vec_store_16_n(p, _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)), n);
}
static inline float kv_vec_first_lane(kv_vec v) { return _mm256_cvtss_f32(v); }
/* One number of 16 bits, in every lane. */
static inline kv_vec kv_vec_set_half(uint16_t h) { return _mm256_set1_ps(_cvtsh_ss(h)); }
/* f16 numbers in the low halves of the lanes, whose high halves are 0. */
static inline kv_vec kv_vec_from_half_bits(kv_vec_int v) {
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}
/* KV_LANES bytes, widened. */
static inline kv_vec_int kv_vec_load_i8(const void *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p)); }
static inline kv_vec_int kv_vec_load_u8(const void *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }

/* 32 integers from -128 to 127 as bytes. */
static inline void kv_vec_store_i8x32(int8_t *p, const kv_vec_int v[32 / KV_LANES]) {
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)p, bytes);
}

/* Pair n of bits, from the lowest, of each of 8 bytes; where there are more lanes, the next pairs too. */
static inline kv_vec_int kv_vec_load_pairs(const uint8_t p[8], int n) {
    __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_and_si256(_mm256_srl_epi32(bytes, _mm_cvtsi32_si128(2 * n)), _mm256_set1_epi32(3));
}
/* table[at], 0 <= at < 16 */
static inline kv_vec kv_vec_look_up(const float table[16], kv_vec_int at) {
    __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), at);
    __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), at);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
}

/* ---- arithmetic */

static inline kv_vec kv_vec_set(float x) { return _mm256_set1_ps(x); }
static inline kv_vec kv_vec_add(kv_vec a, kv_vec b) { return _mm256_add_ps(a, b); }
static inline kv_vec kv_vec_sub(kv_vec a, kv_vec b) { return _mm256_sub_ps(a, b); }
static inline kv_vec kv_vec_mul(kv_vec a, kv_vec b) { return _mm256_mul_ps(a, b); }
static inline kv_vec kv_vec_div(kv_vec a, kv_vec b) { return _mm256_div_ps(a, b); }
/* a * b + c, rounded once */
static inline kv_vec kv_vec_fma(kv_vec a, kv_vec b, kv_vec c) { return _mm256_fmadd_ps(a, b, c); }
/* b where either is NaN */
static inline kv_vec kv_vec_max(kv_vec a, kv_vec b) { return _mm256_max_ps(a, b); }
static inline kv_vec kv_vec_min(kv_vec a, kv_vec b) { return _mm256_min_ps(a, b); }
static inline kv_vec kv_vec_abs(kv_vec a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
/* |a| with the sign of `sign`, a >= 0 */
static inline kv_vec kv_vec_copysign(kv_vec a, kv_vec sign) {
    return _mm256_or_ps(a, _mm256_and_ps(_mm256_set1_ps(-0.0f), sign));
}
/* The whole number nearest to a, half to even. */
static inline kv_vec kv_vec_round(kv_vec a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a * 2^n for whole n up to 128, a near 1: Inf where it is too large, 0 where it is subnormal (n < -126;
 * multiplying down to subnormals costs far more than they are worth). */
static inline kv_vec kv_vec_scale(kv_vec a, kv_vec n) {
    __m256i whole = _mm256_cvtps_epi32(_mm256_max_ps(n, _mm256_set1_ps(-127.0f)));
    __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(whole, _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(a, _mm256_castsi256_ps(exponent));
}

static inline kv_vec_int kv_vec_int_round(kv_vec a) { return _mm256_cvtps_epi32(a); }
static inline kv_vec_int kv_vec_int_cut(kv_vec a) { return _mm256_cvttps_epi32(a); }
static inline kv_vec kv_vec_from_int(kv_vec_int a) { return _mm256_cvtepi32_ps(a); }
static inline kv_vec_int kv_vec_int_set(int32_t x) { return _mm256_set1_epi32(x); }
static inline kv_vec_int kv_vec_int_add(kv_vec_int a, kv_vec_int b) { return _mm256_add_epi32(a, b); }
static inline kv_vec_int kv_vec_int_sub(kv_vec_int a, kv_vec_int b) { return _mm256_sub_epi32(a, b); }
static inline kv_vec_int kv_vec_int_max(kv_vec_int a, kv_vec_int b) { return _mm256_max_epi32(a, b); }
static inline kv_vec_int kv_vec_int_and(kv_vec_int a, kv_vec_int b) { return _mm256_and_si256(a, b); }
static inline kv_vec_int kv_vec_int_or(kv_vec_int a, kv_vec_int b) { return _mm256_or_si256(a, b); }
static inline kv_vec_int kv_vec_int_shift_left(kv_vec_int a, int n) { return _mm256_slli_epi32(a, n); }
static inline kv_vec_int kv_vec_int_shift_right(kv_vec_int a, int n) { return _mm256_srli_epi32(a, n); }
/* By a number that need not be a constant. */
static inline kv_vec_int kv_vec_int_shift_right_by(kv_vec_int a, int n) {
    return _mm256_srl_epi32(a, _mm_cvtsi32_si128(n));
}
/* Lane i is bit i. */
static inline kv_vec_int kv_vec_int_from_bits(uint32_t bits) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int32_t)bits), lane), lane);
    return _mm256_srli_epi32(set, 31);
}
static inline kv_vec_int kv_vec_bits(kv_vec a) { return _mm256_castps_si256(a); }
static inline kv_vec kv_vec_from_bits(kv_vec_int a) { return _mm256_castsi256_ps(a); }
/* b in the lanes where a is NaN, else c */
static inline kv_vec_int kv_vec_if_nan(kv_vec a, kv_vec_int b, kv_vec_int c) {
    __m256 nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
    return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(c), _mm256_castsi256_ps(b), nan));
}

/* All bits set in the lanes where a is not 0. */
static inline kv_vec_int kv_vec_int_where(kv_vec_int a) {
    return _mm256_xor_si256(_mm256_cmpeq_epi32(a, _mm256_setzero_si256()), _mm256_set1_epi32(-1));
}

/* c in the lanes where a > b, else d */
static inline kv_vec kv_vec_if_above(kv_vec a, kv_vec b, kv_vec c, kv_vec d) {
    return _mm256_blendv_ps(d, c, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}

/* ---- across lanes */

static inline bool kv_vec_int_any_negative(kv_vec_int v) {
    return _mm256_movemask_ps(_mm256_castsi256_ps(v)) != 0;
}
/* Lane i of every group of four is v[i] folded to one number. */
typedef kv_vec_int kv_vec_int_fold_fn(kv_vec_int a, kv_vec_int b);
static inline __attribute__((always_inline)) kv_vec_int kv_vec_int_fold_4(const kv_vec_int v[4],
                                                                          kv_vec_int_fold_fn *fold) {
    kv_vec_int ab = fold(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    kv_vec_int cd = fold(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
    kv_vec_int all = fold(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    return fold(all, _mm256_permute2x128_si256(all, all, 1));
}

static inline float kv_vec_sum(kv_vec v) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
static inline int32_t kv_vec_int_sum(kv_vec_int v) {
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}
static inline int32_t kv_vec_int_largest(kv_vec_int v) {
    __m128i x = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

/* Sums in double. */
typedef struct kv_vec_wide {
    __m256d low, high;
} kv_vec_wide;
static inline kv_vec_wide kv_vec_wide_add_squares(kv_vec_wide sum, kv_vec v) {
    __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(v)),
            high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
    return (kv_vec_wide){_mm256_fmadd_pd(low, low, sum.low), _mm256_fmadd_pd(high, high, sum.high)};
}
static inline double kv_vec_wide_sum(kv_vec_wide sum) {
    __m256d v = _mm256_add_pd(sum.low, sum.high);
    __m128d x = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x)));
}

/* [sum of a, b, c, d] of every group of four lanes */
static inline kv_vec kv_vec_fold_4(kv_vec a, kv_vec b, kv_vec c, kv_vec d) {
    __m256d ab = _mm256_castps_pd(_mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)));
    __m256d cd = _mm256_castps_pd(_mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d)));
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd)));
}
/* Lane i is the sum of v[i]. */
static inline kv_vec kv_vec_sum_each(const kv_vec v[KV_LANES]) {
    kv_vec a = kv_vec_fold_4(v[0], v[1], v[2], v[3]), b = kv_vec_fold_4(v[4], v[5], v[6], v[7]);
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/* Lane i of every group of four in all four. */
#define kv_vec_spread(v, i) _mm256_permute_ps(v, 0x55 * (i))

/* Rows become columns: first 4x4 inside halves, then the halves. */
static inline void kv_vec_transpose(kv_vec v[KV_LANES]) {
    kv_vec t[KV_LANES];
    for (int i = 0; i < 8; i += 4) {
        __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(v[i], v[i + 1]));
        __m256d b = _mm256_castps_pd(_mm256_unpackhi_ps(v[i], v[i + 1]));
        __m256d c = _mm256_castps_pd(_mm256_unpacklo_ps(v[i + 2], v[i + 3]));
        __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(v[i + 2], v[i + 3]));
        t[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
        t[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
        t[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
        t[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}
