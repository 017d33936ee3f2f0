/* dot_avx512.h: the vectors of dot.h as 512-bit registers: 16 rows. Needs VNNI, whose dot product adds 4
 * products of an unsigned and a signed byte to 32 bits: nothing overflows, but weights have to be unsigned.
 */
#pragma once

#include "device/cpu/vec_avx512.h"

#include <stdbool.h>
#include <string.h>

typedef __m512i kv_bytes;

static inline kv_bytes kv_bytes_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
static inline kv_bytes kv_bytes_set(int x) { return _mm512_set1_epi8((char)x); }
/* The same 4 bytes for all rows. */
static inline kv_bytes kv_bytes_set4(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
}
static inline kv_bytes kv_bytes_and(kv_bytes a, kv_bytes b) { return _mm512_and_si512(a, b); }
static inline kv_bytes kv_bytes_or(kv_bytes a, kv_bytes b) { return _mm512_or_si512(a, b); }
static inline kv_bytes kv_bytes_xor(kv_bytes a, kv_bytes b) { return _mm512_xor_si512(a, b); }
/* Bits cross from byte to byte: mask what has come in. */
static inline kv_bytes kv_bytes_shift_right(kv_bytes v, int n) { return _mm512_srli_epi16(v, (unsigned)n); }
static inline kv_bytes kv_bytes_shift_left(kv_bytes v, int n) { return _mm512_slli_epi16(v, (unsigned)n); }
/* table[v[i]], v[i] < 16 */
static inline kv_bytes kv_bytes_look_up(const int8_t table[16], kv_bytes v) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), v);
}
/* Sets the bits `value` in the bytes of v where `from` has all bits of `select`, which is one bit in each
 * byte. */
static inline kv_bytes kv_bytes_set_if(kv_bytes v, kv_bytes from, kv_bytes select, int value) {
    return _mm512_mask_add_epi8(v, _mm512_test_epi8_mask(from, select), v, kv_bytes_set(value));
}
/* Byte i of each lane in all four places. */
static inline kv_bytes kv_bytes_spread(kv_bytes v, int i) {
    const __m512i lanes = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    return _mm512_shuffle_epi8(v, _mm512_add_epi8(lanes, _mm512_set1_epi8((char)i)));
}
/* Byte i of each lane as a signed number. */
static inline kv_vec_int kv_bytes_signed_lane(kv_bytes v, int i) {
    return _mm512_srai_epi32(_mm512_slli_epi32(v, (unsigned)(24 - 8 * i)), 24);
}

/* KV_LANES pairs of f16: the first ones, the second ones. */
static inline void kv_vec_load_half_pairs(kv_vec *first, kv_vec *second, const uint8_t *p) {
    const __m512i apart = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, //
                                           30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    __m512i both = _mm512_permutexvar_epi16(apart, kv_bytes_load(p));
    *first = _mm512_cvtph_ps(_mm512_castsi512_si256(both));
    *second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(both, 1));
}

/* 64 numbers from 0 to 255 as bytes. Groups of four stay together; those that began at number i (a multiple
 * of 4) begin at byte kv_packed_at(i), and kv_packed_at(i + j) is the sum where i and j have no bit in
 * common.
 */
static inline void kv_bytes_pack(uint8_t p[64], const kv_vec_int v[4]) {
    __m512i low = _mm512_packus_epi32(v[0], v[1]), high = _mm512_packus_epi32(v[2], v[3]);
    _mm512_storeu_si512(p, _mm512_packus_epi16(low, high));
}
/* x * factor, from 0 to 255, rounded to bytes in the same order. 2^23 more leaves whole numbers in the low
 * half of the bits. */
static inline void kv_bytes_round(uint8_t p[64], const kv_vec x[4], kv_vec factor) {
    const __m512i low_halves =
        _mm512_set_epi64(0x003e003c003a0038, 0x001e001c001a0018, 0x0036003400320030, 0x0016001400120010,
                         0x002e002c002a0028, 0x000e000c000a0008, 0x0026002400220020, 0x0006000400020000);
    const kv_vec whole = _mm512_set1_ps(0x1p23f);
    __m512i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm512_castps_si512(_mm512_fmadd_ps(x[i], factor, whole));
    __m512i low = _mm512_permutex2var_epi16(v[0], low_halves, v[1]);
    __m512i high = _mm512_permutex2var_epi16(v[2], low_halves, v[3]);
    _mm512_storeu_si512(p, _mm512_packus_epi16(low, high));
}
static inline int kv_packed_at(int i) { return i / 16 * 4 + i % 16 * 4; }

/* For 4 rows of 32 bits each, which follow each other in memory: byte r of lane i is byte (from + i) / 8 of
 * row r; from = 0 or 16. */
static inline kv_bytes kv_bytes_bit_rows(const uint8_t p[16], int from) {
    __m512i rows = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)p));
    const __m512i first = _mm512_inserti64x4(_mm512_set1_epi32(0x0c080400), _mm256_set1_epi32(0x0d090501), 1);
    return _mm512_shuffle_epi8(rows, _mm512_add_epi8(first, kv_bytes_set(from / 8)));
}

/* 8 lanes from memory, twice. */
static inline kv_bytes kv_bytes_load_half(const uint8_t *p) {
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p));
}
/* Of such lanes: pair `pair` of bits of each byte in lanes 0-7, the next one in 8-15, moved to bit `to`. */
static inline kv_bytes kv_bytes_pairs_of(kv_bytes v, int pair, int part, int to) {
    (void)part;
    const __m512i count =
        _mm512_inserti64x4(_mm512_set1_epi16((short)(2 * pair)), _mm256_set1_epi16((short)(2 * pair + 2)), 1);
    __m512i moved = kv_bytes_and(_mm512_srlv_epi16(v, count), kv_bytes_set(3));
    return kv_bytes_shift_left(moved, to);
}

/* ---- dot products of weights w and activations x, 4 bytes in each lane */

enum { KV_DOT_SIGNED = 0 };   /* whether signed weights are multiplied as they are */
enum { KV_DOT_WEIGHT = 255 }; /* the largest weight that signed bytes of any size can be multiplied by */

typedef __m512i kv_dot; /* a running sum */

/* How many dot products a kv_dot takes for weights up to `max`. */
static inline int kv_dot_capacity(int max) { return max < 256 ? 8 : 0; }
static inline kv_dot kv_dot_first(kv_bytes w, kv_bytes x, bool is_signed) {
    (void)is_signed;
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, x);
}
static inline kv_dot kv_dot_add(kv_dot sum, kv_bytes w, kv_bytes x, bool is_signed) {
    (void)is_signed;
    return _mm512_dpbusd_epi32(sum, w, x);
}
static inline kv_vec_int kv_dot_sum(kv_dot sum) { return sum; }
/* sum + n dot products, as many as a kv_dot takes. */
static inline kv_vec_int kv_dot_add_to(kv_vec_int sum, const kv_bytes w[], const kv_bytes x[], int n) {
    for (int i = 0; i < n; i++) sum = _mm512_dpbusd_epi32(sum, w[i], x[i]);
    return sum;
}

/* weight * the sum of x[j][0..15] for each of the first n <= KV_LANES / 2 rows at kv_half_sum_at(j), of
 * x[j][16..31] at kv_half_sum_at(j) + KV_HALF_SUM: 8 rows x 8 partial sums, then an adding transposition
 * within quarters. */
enum { KV_HALF_SUM = 4 };
static inline int kv_half_sum_at(int j) { return (j & 1) * 8 + (j >> 1); }
static inline kv_vec_int kv_half_sums(const int8_t *const x[], int n, int weight) {
    __m512i t[4];
    for (int i = 0; i < 4; i++) {
        int even = 2 * i < n ? 2 * i : 0, odd = 2 * i + 1 < n ? 2 * i + 1 : 0;
        __m512i pair = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)x[even]));
        pair = _mm512_inserti64x4(pair, _mm256_loadu_si256((const void *)x[odd]), 1);
        t[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), kv_bytes_set(weight), pair);
    }
    __m512i u = _mm512_add_epi32(_mm512_unpacklo_epi32(t[0], t[1]), _mm512_unpackhi_epi32(t[0], t[1]));
    __m512i v = _mm512_add_epi32(_mm512_unpacklo_epi32(t[2], t[3]), _mm512_unpackhi_epi32(t[2], t[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(u, v), _mm512_unpackhi_epi64(u, v));
}
