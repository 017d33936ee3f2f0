/* matmul_avx512.h: the skeleton of the 8-bit matmul kernels for AVX-512 with VNNI. The 16 lanes of a vector
 * are the 16 rows of a tile; a kernel file brings what is particular to its dtype: the scales of a block and
 * how 32 quants of each row become unsigned bytes. Everything here is inlined into that one kernel.
 *
 *     for each tile: for 8 columns of x at a time (4, 2, 1 at the end): for each block: unpack once, then per
 * column integer sum over the quants that share a scale    vpdpbusd, exact y += sum * (scale * x.scale) [+
 * min * x.sum]      f32
 *
 * A column's sum is built in the same order whatever n_x is: results do not depend on the shape of the batch.
 */
#pragma once

#include "device/cpu/kernel.h"
#include "dtype/a8.h"

#include <immintrin.h>
#include <string.h>

#define KV_INLINE static inline __attribute__((always_inline))

enum { KV_Q8_VECTORS = 8, KV_MAX_SUBS = 16, KV_MAX_COLUMNS = 8 };

/* The scales of a block, row by row in the lanes, one vector for each sub-block: x = scale * (q - offset) +
 * min. */
typedef struct kv_scales512 {
    __m512 scale[KV_MAX_SUBS], min[KV_MAX_SUBS];
} kv_scales512;

typedef struct kv_format512 {
    int32_t elems;     /* of a block */
    int32_t bytes;     /* of a block of one row */
    int32_t sub_elems; /* numbers that share a scale: 32 or 16 */
    int32_t steps;     /* 32-element steps in a group, which unpack gets as a constant: 1, 2 or 4 */
    int32_t offset;
    bool has_min;
    void (*scales)(kv_scales512 *s, const uint8_t *block);
    /* Elements 32 * (group * steps + step) and on: lane r of q[i] holds numbers 4 i to 4 i + 3 of row r as
     * bytes. */
    void (*unpack)(__m512i q[KV_Q8_VECTORS], const uint8_t *block, int32_t group, int32_t step);
} kv_format512;

KV_INLINE __m512i kv_load512(const uint8_t *p) { return _mm512_loadu_si512(p); }

/* 16 f16 numbers that lie together. */
KV_INLINE __m512 kv_load_f16x16(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}

/* 16 pairs of f16 numbers: the first ones, the second ones. */
KV_INLINE void kv_load_f16_pairs(__m512 *first, __m512 *second, const uint8_t *p) {
    const __m512i apart = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, /**/
                                           30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    __m512i both = _mm512_permutexvar_epi16(apart, kv_load512(p));
    *first = _mm512_cvtph_ps(_mm512_castsi512_si256(both));
    *second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(both, 1));
}

KV_INLINE __m512i kv_low_nibbles512(__m512i bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(15)); }
KV_INLINE __m512i kv_high_nibbles512(__m512i bytes) { return kv_low_nibbles512(_mm512_srli_epi16(bytes, 4)); }

/* 64 bytes of nibbles of 4 x 64: the low ones are elements 0-15, the high ones 16-31. */
KV_INLINE void kv_unpack_nibbles512(__m512i q[KV_Q8_VECTORS], const uint8_t *quants) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i bytes = kv_load512(quants + 64 * i);
        q[i] = kv_low_nibbles512(bytes);
        q[i + 4] = kv_high_nibbles512(bytes);
    }
}

KV_INLINE __m512i kv_set4_epi8_512(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Where the sums of column j's quants stand in the result of kv_half_sums512: elements 0-15 here, 16-31 at
 * + 4. */
KV_INLINE int kv_half_sum_at(int j) { return (j & 1) * 8 + (j >> 1); }

/* weight * the sum of each half block of up to 8 columns (n of them): 8 columns x 8 partial sums, then an
 * adding transposition inside each quarter of the vectors. */
KV_INLINE __m512i kv_half_sums512(const kv_a8_block *const x[], int n, int8_t weight) {
    const __m512i weights = _mm512_set1_epi8(weight);
    __m512i t[4];
    for (int i = 0; i < 4; i++) {
        int even = 2 * i < n ? 2 * i : 0, odd = 2 * i + 1 < n ? 2 * i + 1 : 0;
        __m512i a = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)x[even]->quants));
        a = _mm512_inserti64x4(a, _mm256_loadu_si256((const void *)x[odd]->quants), 1);
        t[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), weights, a);
    }
    __m512i u = _mm512_add_epi32(_mm512_unpacklo_epi32(t[0], t[1]), _mm512_unpackhi_epi32(t[0], t[1]));
    __m512i v = _mm512_add_epi32(_mm512_unpacklo_epi32(t[2], t[3]), _mm512_unpackhi_epi32(t[2], t[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(u, v), _mm512_unpackhi_epi64(u, v));
}

/* Numbers per column besides the products, stored so that they can be broadcast: where quants carry an
 * offset, what takes it back, -offset * (sum of x's quants); where 16 elements share a minimum, the sums of
 * x's quants as f32. */
typedef union kv_sums512 {
    int32_t corrections[16];
    float sums[16];
} kv_sums512;

KV_INLINE void kv_sums512_of(kv_sums512 *out, const kv_format512 *f, const kv_a8_block *const x[], int n) {
    if (f->offset) {
        /* 128 is no int8: twice 64 */
        __m512i s = kv_half_sums512(x, n, (int8_t)(f->offset == 128 ? 64 : f->offset));
        if (f->offset == 128) s = _mm512_add_epi32(s, s);
        if (f->sub_elems == 32) s = _mm512_add_epi32(s, _mm512_shuffle_i32x4(s, s, 0xb1));
        _mm512_storeu_si512(out, _mm512_sub_epi32(_mm512_setzero_si512(), s));
    } else if (f->has_min && f->sub_elems == 16) {
        _mm512_storeu_ps(out, _mm512_cvtepi32_ps(kv_half_sums512(x, n, 1)));
    }
}

/* One step of 32 elements for n columns; x[j] are their blocks. */
KV_INLINE void kv_step512(__m512 y[], int n, const kv_format512 *f, const kv_scales512 *s,
                          const uint8_t *block, const kv_a8_block *const x[], int32_t group, int32_t step) {
    __m512i q[KV_Q8_VECTORS];
    f->unpack(q, block, group, step);
    kv_sums512 sums;
    kv_sums512_of(&sums, f, x, n);
    const int subs = 32 / f->sub_elems, vectors = KV_Q8_VECTORS / subs;
#pragma GCC unroll 2
    for (int h = 0; h < subs; h++) {
        __m512i acc[KV_MAX_COLUMNS];
#pragma GCC unroll 8
        for (int j = 0; j < n; j++) acc[j] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int i = h * vectors; i < (h + 1) * vectors; i++)
#pragma GCC unroll 8
            for (int j = 0; j < n; j++)
                acc[j] = _mm512_dpbusd_epi32(acc[j], q[i], kv_set4_epi8_512(x[j]->quants + 4 * i));
        int32_t at = (group * f->steps + step) * subs + h;
#pragma GCC unroll 8
        for (int j = 0; j < n; j++) {
            if (f->offset)
                acc[j] =
                    _mm512_add_epi32(acc[j], _mm512_set1_epi32(sums.corrections[kv_half_sum_at(j) + 4 * h]));
            __m512 x_scale = _mm512_set1_ps(x[j]->scale);
            y[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[j]), _mm512_mul_ps(s->scale[at], x_scale), y[j]);
            if (!f->has_min) continue;
            if (f->sub_elems == 32)
                y[j] = _mm512_fmadd_ps(s->min[at], _mm512_set1_ps(x[j]->sum), y[j]);
            else
                y[j] = _mm512_fmadd_ps(_mm512_mul_ps(s->min[at], x_scale),
                                       _mm512_set1_ps(sums.sums[kv_half_sum_at(j) + 4 * h]), y[j]);
        }
    }
}

/* Columns [first, first + n) against one tile. */
KV_INLINE void kv_columns512(const kv_matmul_args *a, const kv_format512 *f, int32_t tile, int32_t first,
                             int n) {
    const uint8_t *block = (const uint8_t *)a->w + (size_t)tile * a->tile_bytes;
    const uint8_t *x = (const uint8_t *)a->x + (size_t)first * a->x_bytes;
    __m512 y[KV_MAX_COLUMNS];
#pragma GCC unroll 8
    for (int j = 0; j < n; j++) y[j] = _mm512_setzero_ps();
    for (int64_t c = 0; c < a->cols; c += f->elems, block += (size_t)f->bytes * KV_TILE_ROWS) {
        kv_scales512 s;
        f->scales(&s, block);
        for (int32_t group = 0; group < f->elems / 32 / f->steps; group++) {
#pragma GCC unroll 4
            for (int32_t step = 0; step < f->steps; step++, x += sizeof(kv_a8_block)) {
                const kv_a8_block *at[KV_MAX_COLUMNS];
#pragma GCC unroll 8
                for (int j = 0; j < n; j++) at[j] = (const kv_a8_block *)(x + (size_t)j * a->x_bytes);
                kv_step512(y, n, f, &s, block, at, group, step);
            }
        }
    }
    float *out = a->y + (size_t)first * a->y_step + (size_t)tile * KV_TILE_ROWS;
#pragma GCC unroll 8
    for (int j = 0; j < n; j++) _mm512_storeu_ps(out + (size_t)j * a->y_step, y[j]);
}

KV_INLINE void kv_matmul512(const kv_matmul_args *a, const kv_format512 f) {
    for (int32_t tile = 0; tile < a->n_tiles; tile++) {
        int32_t j = 0;
        for (; j + 8 <= a->n_x; j += 8) kv_columns512(a, &f, tile, j, 8);
        if (a->n_x & 4) kv_columns512(a, &f, tile, j, 4), j += 4;
        if (a->n_x & 2) kv_columns512(a, &f, tile, j, 2), j += 2;
        if (a->n_x & 1) kv_columns512(a, &f, tile, j, 1);
    }
}
