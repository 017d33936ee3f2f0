/* score_rows_vec.h: score over the layout rows. Two forms.
 *
 * Few queries (decoding): vector lanes are dimensions. A block of queries x cells with KV_LANES products in
 * all keeps one sum vector for each; a number of K is decoded once for all queries of the block, and the sums
 * are folded together at the end.
 *
 * Many queries (prefill): vector lanes are cells. Cells are decoded and transposed to a panel of f32 once,
 *
 *     panel[dimension][2 x KV_LANES cells]
 *
 * and every query streams its numbers past it as scalars: no folding, and each panel vector serves a block of
 * queries.
 *
 * The forms add in different orders: a score depends on how many queries came along, by a few roundings. */
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/vec_dtype.h"

#include <string.h>

enum {
    KV_SCORE_FEW = 8, /* queries up to which the first form is taken */
    KV_SCORE_PANEL_CELLS = 2 * KV_LANES,
    KV_SCORE_PANEL_DIMS = 128,       /* a panel is 16 KiB with 16 lanes: half of the first-level cache */
    KV_SCORE_QUERIES = KV_LANES / 2, /* 2 sum vectors for each in the second form */
};

/* ---- few queries */

/* Adds the products of n dimensions from d on: sums[i * n_cells + j] is of query i and cell j. */
KV_TEMPLATE void kv_score_few_step(kv_vec sums[KV_LANES], const float *query, int32_t n_q, size_t head_dim,
                                   const uint8_t *const k[], int32_t n_cells, kv_vec_row_fn *load, int32_t d,
                                   int32_t n) {
    kv_vec x[KV_SCORE_FEW];
    for (int32_t i = 0; i < n_q; i++) x[i] = kv_vec_row_f32(query + (size_t)i * head_dim, d, n);
    for (int32_t j = 0; j < n_cells; j++) {
        kv_vec y = load(k[j], d, n);
        for (int32_t i = 0; i < n_q; i++) sums[i * n_cells + j] = kv_vec_fma(x[i], y, sums[i * n_cells + j]);
    }
}

/* Dot products of queries [q, q + n_q) with cells [c, c + n_cells), n_q * n_cells <= KV_LANES; cells past the
 * last are scored as the last. */
KV_TEMPLATE void kv_score_few_block(const kv_score_args *a, kv_vec_row_fn *load, int32_t n_q, int32_t c,
                                    int32_t n_cells) {
    const uint8_t *k[KV_LANES];
    for (int32_t j = 0; j < n_cells; j++) {
        int32_t cell = c + j < a->n_cells ? c + j : a->n_cells - 1;
        k[j] = (const uint8_t *)a->k + (size_t)cell * a->k_bytes;
    }
    const size_t dim = (size_t)a->head_dim;
    kv_vec sums[KV_LANES];
    int32_t d = 0;
    for (int32_t i = 0; i < KV_LANES; i++) sums[i] = kv_vec_set(0);
    for (; d + KV_LANES <= a->head_dim; d += KV_LANES)
        kv_score_few_step(sums, a->q, n_q, dim, k, n_cells, load, d, KV_LANES);
    if (d < a->head_dim) kv_score_few_step(sums, a->q, n_q, dim, k, n_cells, load, d, a->head_dim - d);
    float s[KV_LANES];
    kv_vec_store(s, kv_vec_sum_each(sums));
    for (int32_t i = 0; i < n_q; i++)
        memcpy(a->s + (size_t)i * a->s_step + c, s + i * n_cells, (size_t)n_cells * sizeof *s);
}

KV_TEMPLATE void kv_score_few(const kv_score_args *a, kv_vec_row_fn *load, int32_t n_q) {
    const int32_t n_cells = n_q == 1   ? KV_LANES
                            : n_q == 2 ? KV_LANES / 2
                            : n_q <= 4 ? KV_LANES / 4
                                       : KV_LANES / 8;
    for (int32_t c = 0; c < a->n_cells; c += n_cells) kv_score_few_block(a, load, n_q, c, n_cells);
}

/* ---- many queries */

/* n dimensions from d on of KV_LANES cells from c on to one column of vectors of the panel. */
KV_TEMPLATE void kv_score_panel_part(float *panel, const kv_score_args *a, kv_vec_row_fn *load, int32_t c,
                                     int32_t d, int32_t n) {
    kv_vec v[KV_LANES];
    for (int32_t j = 0; j < KV_LANES; j++) {
        int32_t cell = c + j < a->n_cells ? c + j : a->n_cells - 1;
        v[j] = load((const uint8_t *)a->k + (size_t)cell * a->k_bytes, d, n);
    }
    kv_vec_transpose(v);
    for (int32_t j = 0; j < n; j++) kv_vec_store(panel + j * KV_SCORE_PANEL_CELLS, v[j]);
}

/* Dimensions [d, d + n_dims) of cells [c, c + KV_SCORE_PANEL_CELLS) to the panel. */
KV_TEMPLATE void kv_score_panel(float *panel, const kv_score_args *a, kv_vec_row_fn *load, int32_t c,
                                int32_t d, int32_t n_dims) {
    for (int32_t half = 0; half < KV_SCORE_PANEL_CELLS; half += KV_LANES) {
        float *part = panel + half;
        int32_t i = 0;
        for (; i + KV_LANES <= n_dims; i += KV_LANES)
            kv_score_panel_part(part + i * KV_SCORE_PANEL_CELLS, a, load, c + half, d + i, KV_LANES);
        if (i < n_dims)
            kv_score_panel_part(part + i * KV_SCORE_PANEL_CELLS, a, load, c + half, d + i, n_dims - i);
    }
}

/* Adds the panel's share to the scores of queries [q, q + n_q), or sets them where it is the first (d == 0).
 */
KV_TEMPLATE void kv_score_many_block(const kv_score_args *a, const float *panel, int32_t q, int32_t n_q,
                                     int32_t c, int32_t d, int32_t n_dims) {
    const float *x[KV_SCORE_QUERIES];
    kv_vec sums[KV_SCORE_QUERIES][2];
    float *s = a->s + (size_t)q * a->s_step + c;
    const bool second = c + KV_LANES < a->n_cells;
    for (int32_t i = 0; i < n_q; i++) {
        x[i] = a->q + (size_t)(q + i) * (size_t)a->head_dim + d;
        sums[i][0] = d ? kv_vec_load(s + (size_t)i * a->s_step) : kv_vec_set(0);
        sums[i][1] = d && second ? kv_vec_load(s + (size_t)i * a->s_step + KV_LANES) : kv_vec_set(0);
    }
    for (int32_t j = 0; j < n_dims; j++, panel += KV_SCORE_PANEL_CELLS) {
        kv_vec first = kv_vec_load(panel), last = kv_vec_load(panel + KV_LANES);
        for (int32_t i = 0; i < n_q; i++) {
            kv_vec number = kv_vec_set(x[i][j]);
            sums[i][0] = kv_vec_fma(number, first, sums[i][0]);
            sums[i][1] = kv_vec_fma(number, last, sums[i][1]);
        }
    }
    for (int32_t i = 0; i < n_q; i++) {
        kv_vec_store(s + (size_t)i * a->s_step, sums[i][0]);
        if (second) kv_vec_store(s + (size_t)i * a->s_step + KV_LANES, sums[i][1]);
    }
}

/* Not inlined: it does not depend on the dtype. */
static __attribute__((noinline)) void kv_score_many_queries(const kv_score_args *a, const float *panel,
                                                            int32_t c, int32_t d, int32_t n_dims) {
    int32_t q = 0;
    for (; q + KV_SCORE_QUERIES <= a->n_q; q += KV_SCORE_QUERIES)
        kv_score_many_block(a, panel, q, KV_SCORE_QUERIES, c, d, n_dims);
    int32_t rest = a->n_q - q;
    if (rest & 4) kv_score_many_block(a, panel, q, 4, c, d, n_dims);
    q += rest & 4;
    if (rest & 2) kv_score_many_block(a, panel, q, 2, c, d, n_dims);
    q += rest & 2;
    if (rest & 1) kv_score_many_block(a, panel, q, 1, c, d, n_dims);
}

KV_TEMPLATE void kv_score_many(const kv_score_args *a, kv_vec_row_fn *load) {
    float panel[KV_SCORE_PANEL_DIMS * KV_SCORE_PANEL_CELLS];
    for (int32_t c = 0; c < a->n_cells; c += KV_SCORE_PANEL_CELLS) {
        for (int32_t d = 0; d < a->head_dim; d += KV_SCORE_PANEL_DIMS) {
            int32_t rest = a->head_dim - d, n_dims = rest < KV_SCORE_PANEL_DIMS ? rest : KV_SCORE_PANEL_DIMS;
            kv_score_panel(panel, a, load, c, d, n_dims);
            kv_score_many_queries(a, panel, c, d, n_dims);
        }
    }
}

KV_TEMPLATE void kv_score_rows(const kv_score_args *a, kv_vec_row_fn *load) {
    switch (a->n_q) {
    case 1: kv_score_few(a, load, 1); break;
    case 2: kv_score_few(a, load, 2); break;
    case 3: kv_score_few(a, load, 3); break;
    case 4: kv_score_few(a, load, 4); break;
    case 5: kv_score_few(a, load, 5); break;
    case 6: kv_score_few(a, load, 6); break;
    case 7: kv_score_few(a, load, 7); break;
    case 8: kv_score_few(a, load, 8); break;
    default: kv_score_many(a, load); break;
    }
}

/* Defines kv_score_<dtype>_rows_<isa>. */
#define KV_SCORE_ROWS(dtype, isa)              \
    kv_score_fn kv_score_##dtype##_rows_##isa; \
    void kv_score_##dtype##_rows_##isa(const kv_score_args *a) { kv_score_rows(a, kv_vec_row_##dtype); }
