/* accumulate_rows_vec.h: accumulate over the layout rows. Vector lanes are dimensions; a block of queries x
 * vectors of the output stays in registers while the cells go by, and each number of V is decoded once for
 * the queries of the block. With many queries a strip of V is decoded once for all of them to a small f32
 * buffer
 *
 *     strip[cell][KV_ACC_VECS x KV_LANES dimensions] */
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/vec_dtype.h"

#include <string.h>

enum {
    KV_ACC_VECS = KV_LANES / 4, /* 4 vectors of 16 lanes, 2 of 8: 16 or 8 sums with 4 queries */
    KV_ACC_DIMS = KV_ACC_VECS * KV_LANES,
    KV_ACC_QUERIES = 4,
    KV_ACC_FEW = 8, /* queries up to which V is decoded anew for every block */
    KV_ACC_MAX_CELLS = 64,
};

/* +0 or -0; an integer test costs the vector units nothing. */
static inline bool kv_is_zero(const float *p) {
    uint32_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits << 1 == 0;
}

/* Queries [q, q + n_q), n_vecs vectors of dimensions from d on, the last with `last` numbers; V of cell c at
 * v + c * v_bytes, its dimension d being number `at` there. */
KV_TEMPLATE void kv_accumulate_block(const kv_accumulate_args *a, kv_vec_row_fn *load, const uint8_t *v,
                                     size_t v_bytes, int32_t at, int32_t q, int32_t n_q, int32_t d,
                                     int32_t n_vecs, int32_t last) {
    kv_vec sums[KV_ACC_QUERIES][KV_ACC_VECS], x[KV_ACC_VECS];
    float *o = a->o + (size_t)q * (size_t)a->head_dim + d;
    const float *p = a->p + (size_t)q * a->p_step;
    for (int32_t i = 0; i < n_q; i++)
        for (int32_t j = 0; j < n_vecs; j++)
            sums[i][j] = kv_vec_row_f32(o + (size_t)i * (size_t)a->head_dim, j * KV_LANES,
                                        j == n_vecs - 1 ? last : KV_LANES);
    for (int32_t c = 0; c < a->n_cells; c++, v += v_bytes, p++) {
        for (int32_t j = 0; j < n_vecs; j++)
            x[j] = load(v, at + j * KV_LANES, j == n_vecs - 1 ? last : KV_LANES);
        for (int32_t i = 0; i < n_q; i++) {
            if (kv_is_zero(p + (size_t)i * a->p_step)) continue;
            kv_vec weight = kv_vec_set(p[(size_t)i * a->p_step]);
            for (int32_t j = 0; j < n_vecs; j++) sums[i][j] = kv_vec_fma(weight, x[j], sums[i][j]);
        }
    }
    for (int32_t i = 0; i < n_q; i++)
        for (int32_t j = 0; j < n_vecs; j++) {
            float *out = o + (size_t)i * (size_t)a->head_dim + j * KV_LANES;
            if (j < n_vecs - 1 || last == KV_LANES)
                kv_vec_store(out, sums[i][j]);
            else
                kv_vec_store_n(out, sums[i][j], last);
        }
}

/* All dimensions of a strip: whole vectors of a full strip at once, else one by one. */
KV_TEMPLATE void kv_accumulate_strip(const kv_accumulate_args *a, kv_vec_row_fn *load, const uint8_t *v,
                                     size_t v_bytes, int32_t at, int32_t q, int32_t n_q, int32_t d) {
    if (a->head_dim - d >= KV_ACC_DIMS) {
        kv_accumulate_block(a, load, v, v_bytes, at, q, n_q, d, KV_ACC_VECS, KV_LANES);
        return;
    }
    for (int32_t i = 0; d + i < a->head_dim; i += KV_LANES) {
        int32_t rest = a->head_dim - d - i;
        if (rest >= KV_LANES)
            kv_accumulate_block(a, load, v, v_bytes, at + i, q, n_q, d + i, 1, KV_LANES);
        else
            kv_accumulate_block(a, load, v, v_bytes, at + i, q, n_q, d + i, 1, rest);
    }
}

KV_TEMPLATE void kv_accumulate_queries(const kv_accumulate_args *a, kv_vec_row_fn *load, const uint8_t *v,
                                       size_t v_bytes, int32_t at, int32_t d) {
    int32_t q = 0;
    for (; q + KV_ACC_QUERIES <= a->n_q; q += KV_ACC_QUERIES)
        kv_accumulate_strip(a, load, v, v_bytes, at, q, KV_ACC_QUERIES, d);
    switch (a->n_q - q) {
    case 1: kv_accumulate_strip(a, load, v, v_bytes, at, q, 1, d); break;
    case 2: kv_accumulate_strip(a, load, v, v_bytes, at, q, 2, d); break;
    case 3: kv_accumulate_strip(a, load, v, v_bytes, at, q, 3, d); break;
    default: break;
    }
}

/* Dimensions from d on, at most KV_ACC_DIMS, of all cells. */
KV_TEMPLATE void kv_accumulate_decode(float *strip, const kv_accumulate_args *a, kv_vec_row_fn *load,
                                      int32_t d) {
    const uint8_t *v = a->v;
    int32_t n_dims = a->head_dim - d < KV_ACC_DIMS ? a->head_dim - d : KV_ACC_DIMS;
    for (int32_t c = 0; c < a->n_cells; c++, v += a->v_bytes, strip += KV_ACC_DIMS)
        for (int32_t i = 0; i < n_dims; i += KV_LANES)
            kv_vec_store(strip + i, load(v, d + i, n_dims - i < KV_LANES ? n_dims - i : KV_LANES));
}

KV_TEMPLATE void kv_accumulate_rows(const kv_accumulate_args *a, kv_vec_row_fn *load) {
    float strip[KV_ACC_MAX_CELLS * KV_ACC_DIMS];
    for (int32_t d = 0; d < a->head_dim; d += KV_ACC_DIMS) {
        if (a->n_q <= KV_ACC_FEW) {
            kv_accumulate_queries(a, load, a->v, a->v_bytes, d, d);
            continue;
        }
        kv_accumulate_decode(strip, a, load, d);
        kv_accumulate_queries(a, kv_vec_row_f32, (const uint8_t *)strip, KV_ACC_DIMS * sizeof *strip, 0, d);
    }
}

/* Defines kv_accumulate_<dtype>_rows_<isa>. */
#define KV_ACCUMULATE_ROWS(dtype, isa)                                     \
    kv_accumulate_fn kv_accumulate_##dtype##_rows_##isa;                   \
    void kv_accumulate_##dtype##_rows_##isa(const kv_accumulate_args *a) { \
        kv_accumulate_rows(a, kv_vec_row_##dtype);                         \
    }
