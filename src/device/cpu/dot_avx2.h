/* dot_avx2.h: the vectors of dot.h as 256-bit registers: 8 rows. The products of an unsigned and a signed
 * byte are added in pairs to 16 bits, where they must not overflow: so many small weights are summed before
 * they are widened. */
#pragma once

#include "device/cpu/vec_avx2.h"

#include <stdbool.h>

typedef __m256i kv_bytes;

static inline kv_bytes kv_bytes_load(const uint8_t *p) { return _mm256_loadu_si256((const void *)p); }
static inline kv_bytes kv_bytes_set(int x) { return _mm256_set1_epi8((char)x); }
/* The same 4 bytes for all rows. */
static inline kv_bytes kv_bytes_set4(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
}
static inline kv_bytes kv_bytes_and(kv_bytes a, kv_bytes b) { return _mm256_and_si256(a, b); }
static inline kv_bytes kv_bytes_or(kv_bytes a, kv_bytes b) { return _mm256_or_si256(a, b); }
static inline kv_bytes kv_bytes_xor(kv_bytes a, kv_bytes b) { return _mm256_xor_si256(a, b); }
/* Bits cross from byte to byte: mask what has come in. */
static inline kv_bytes kv_bytes_shift_right(kv_bytes v, int n) { return _mm256_srli_epi16(v, n); }
static inline kv_bytes kv_bytes_shift_left(kv_bytes v, int n) { return _mm256_slli_epi16(v, n); }
/* table[v[i]], v[i] < 16 */
static inline kv_bytes kv_bytes_look_up(const int8_t table[16], kv_bytes v) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table)), v);
}
/* Sets the bits `value` in the bytes of v where `from` has the one bit of `select`. */
static inline kv_bytes kv_bytes_set_if(kv_bytes v, kv_bytes from, kv_bytes select, int value) {
    kv_bytes is_set = _mm256_cmpeq_epi8(_mm256_and_si256(from, select), select);
    return _mm256_or_si256(v, _mm256_and_si256(is_set, kv_bytes_set(value)));
}
/* Byte i of each lane in all four places. */
static inline kv_bytes kv_bytes_spread(kv_bytes v, int i) {
    const __m256i lanes =
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    return _mm256_shuffle_epi8(v, _mm256_add_epi8(lanes, kv_bytes_set(i)));
}
/* Byte i of each lane as a signed number. */
static inline kv_vec_int kv_bytes_signed_lane(kv_bytes v, int i) {
    return _mm256_srai_epi32(_mm256_slli_epi32(v, 24 - 8 * i), 24);
}

/* KV_LANES pairs of f16: the first ones, the second ones. */
static inline void kv_vec_load_half_pairs(kv_vec *first, kv_vec *second, const uint8_t *p) {
    const __m256i apart =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    __m256i both = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(kv_bytes_load(p), apart), 0xd8);
    *first = _mm256_cvtph_ps(_mm256_castsi256_si128(both));
    *second = _mm256_cvtph_ps(_mm256_extracti128_si256(both, 1));
}

/* 64 numbers from 0 to 255 as bytes. Groups of four stay together; those that began at number i (a multiple
 * of 4) begin at byte kv_packed_at(i), and kv_packed_at(i + j) is the sum where i and j have no bit in
 * common.
 */
static inline void kv_bytes_pack(uint8_t p[64], const kv_vec_int v[8]) {
    for (int i = 0; i < 8; i += 4) {
        __m256i low = _mm256_packus_epi32(v[i], v[i + 1]), high = _mm256_packus_epi32(v[i + 2], v[i + 3]);
        _mm256_storeu_si256((__m256i *)(p + 8 * i), _mm256_packus_epi16(low, high));
    }
}
/* x * factor, from 0 to 255, rounded to bytes in the same order. */
static inline void kv_bytes_round(uint8_t p[64], const kv_vec x[8], kv_vec factor) {
    kv_vec_int v[8];
    for (int i = 0; i < 8; i++) v[i] = kv_vec_int_round(kv_vec_mul(x[i], factor));
    kv_bytes_pack(p, v);
}
static inline int kv_packed_at(int i) { return i / 32 * 32 + i % 32 / 8 * 4 + i % 8 * 4; }

/* For 4 rows of 32 bits each, which follow each other in memory: byte r of lane i is byte (from + i) / 8 of
 * row r; from = 0, 8, 16 or 24. */
static inline kv_bytes kv_bytes_bit_rows(const uint8_t p[16], int from) {
    __m256i rows = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
    return _mm256_shuffle_epi8(rows, _mm256_add_epi8(_mm256_set1_epi32(0x0c080400), kv_bytes_set(from / 8)));
}

/* 8 lanes from memory. */
static inline kv_bytes kv_bytes_load_half(const uint8_t *p) { return kv_bytes_load(p); }
/* Pair `pair` + `part` of bits of each byte, moved to bit `to`. */
static inline kv_bytes kv_bytes_pairs_of(kv_bytes v, int pair, int part, int to) {
    kv_bytes moved = _mm256_srl_epi16(v, _mm_cvtsi32_si128(2 * (pair + part)));
    return kv_bytes_shift_left(kv_bytes_and(moved, kv_bytes_set(3)), to);
}

/* ---- dot products of weights w and activations x, 4 bytes in each lane */

enum { KV_DOT_SIGNED = 1 };   /* whether signed weights are multiplied as they are */
enum { KV_DOT_WEIGHT = 127 }; /* the largest weight that signed bytes of any size can be multiplied by */

typedef __m256i kv_dot; /* a running sum: pairs in 16 bits */

/* How many dot products a kv_dot takes for weights up to `max`; x is from -128 to 127. */
static inline int kv_dot_capacity(int max) {
    int n = 32767 / (2 * 128 * max);
    return n > 4 ? 8 : n > 2 ? 4 : n > 1 ? 2 : 1;
}
/* Signed weights from -128 to 127: their sign moves over to x, which must not be -128 then. */
static inline kv_dot kv_dot_first(kv_bytes w, kv_bytes x, bool is_signed) {
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                     : _mm256_maddubs_epi16(w, x);
}
static inline kv_dot kv_dot_add(kv_dot sum, kv_bytes w, kv_bytes x, bool is_signed) {
    return _mm256_add_epi16(sum, kv_dot_first(w, x, is_signed));
}
static inline kv_vec_int kv_dot_sum(kv_dot sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
/* sum + n dot products, as many as a kv_dot takes. */
static inline kv_vec_int kv_dot_add_to(kv_vec_int sum, const kv_bytes w[], const kv_bytes x[], int n) {
    kv_dot dot = kv_dot_first(w[0], x[0], false);
    for (int i = 1; i < n; i++) dot = kv_dot_add(dot, w[i], x[i], false);
    return kv_vec_int_add(sum, kv_dot_sum(dot));
}

/* weight * the sum of x[j][0..15] for each of the first n <= KV_LANES / 2 rows at kv_half_sum_at(j), of
 * x[j][16..31] at kv_half_sum_at(j) + KV_HALF_SUM; weight < 64. */
enum { KV_HALF_SUM = 4 };
static inline int kv_half_sum_at(int j) { return j; }
static inline kv_vec_int kv_half_sums(const int8_t *const x[], int n, int weight) {
    __m256i t[4];
    for (int i = 0; i < 4; i++)
        t[i] = kv_dot_sum(
            _mm256_maddubs_epi16(kv_bytes_set(weight), _mm256_loadu_si256((const void *)x[i < n ? i : 0])));
    return _mm256_hadd_epi32(_mm256_hadd_epi32(t[0], t[1]), _mm256_hadd_epi32(t[2], t[3]));
}
