/* accumulate_quad16_vec.h: accumulate over the layout quad16 with probabilities of 8 bits, for V in blocks of
 * 32 with one f16 scale, or a scale and a minimum. Vector lanes are dimensions; the four bytes of a lane are
 * four cells, summed by an integer dot product:
 *
 *     for each block of 32 dimensions, for each query:
 *         p[c] * |scale[c]|  ->  step * w[c], w an integer from 0 to the largest that the dot product takes
 *         o[d] += step * (sum over c of w[c] * q[c][d])  [+ sum over c of p[c] * min[c]]
 *
 * w has no sign: where the scale of a cell is negative its quants are complemented, -q = ~q + 1, and the ones
 * are added to the sum, together with the offsets of the quants, as another dot product of w. Offsets and
 * minima are such that q - offset lies around 0, where rounding w costs least.
 *
 * The weights of several queries or blocks are made in one go, then their sums: one after the other, the
 * latency of each would show.
 *
 * A query's sums are built in the same order whatever n_q is. Cells that no query sees count as scale 0;
 * where a scale is Inf or NaN nevertheless, queries go one by one, so that one that skips the cell does not
 * meet it.
 */
#pragma once

#include "device/cpu/dot.h"
#include "device/cpu/kernel.h"

#include <stddef.h>
#include <string.h>

enum {
    KV_QUAD_TILE = 16, /* cells */
    KV_QUAD_DIMS = 32, /* of a block */
    KV_QUAD_CELLS = 64,
    KV_QUAD_VECS = KV_QUAD_CELLS / KV_LANES,
    KV_QUAD_PARTS = 16 / KV_LANES,  /* vectors of half a block */
    KV_QUAD_QUERIES = KV_LANES / 2, /* summed at a time: what the registers hold */
    KV_QUAD_FEW = 8,                /* queries up to which several blocks go together */
    KV_QUAD_BLOCKS = 4,
    KV_QUAD_ROWS = KV_QUAD_FEW * KV_QUAD_BLOCKS, /* of weights: a query of a block each */
};

#define KV_QUAD_PLANE(dtype, field) (offsetof(kv_##dtype##_block, field) * KV_QUAD_TILE)

/* x = scale * (q - offset) [+ min] */
typedef struct kv_quad_format {
    int32_t bytes; /* of a cell's block */
    int32_t max;   /* of |q| and |~q|: a power of two */
    int32_t offset;
    bool has_min;
    /* Of cells `first` and on of a tile; without has_min, *min may stay. */
    void (*scales)(kv_vec *scale, kv_vec *min, const uint8_t *block, int32_t first);
    /* For quad i of a tile's cells: q[h][i] = dimensions 16 h + part * KV_LANES and on, as signed bytes. */
    void (*unpack)(kv_bytes q[2][4], const uint8_t *block, int32_t part);
} kv_quad_format;

/* What the queries share of a block: in the lanes cells, in bytes as kv_bytes_pack orders them. */
typedef struct kv_quad_cells {
    kv_vec scale[KV_QUAD_VECS], min[KV_QUAD_VECS]; /* |scale| */
    uint8_t flip[KV_QUAD_CELLS];                   /* 255 where the scale is negative */
    uint8_t extra[KV_QUAD_CELLS];                  /* signed: what w is multiplied by besides ~q or q */
    bool flips, corrects, has_min;
    float levels, inverse; /* the largest w, and 1 / w */
} kv_quad_cells;

/* Rows of weights, a query of a block each. Numbers are stored by whole vectors in ascending order. */
typedef struct kv_quad_weights {
    uint8_t w[KV_QUAD_ROWS][KV_QUAD_CELLS];
    float step[KV_QUAD_ROWS + KV_LANES];
    float min[KV_QUAD_ROWS + KV_LANES];     /* sum of p * min */
    int32_t extra[KV_QUAD_ROWS + KV_LANES]; /* sum of w * extra */
} kv_quad_weights;

/* Probabilities of n queries, up to 4, KV_QUAD_CELLS each. */
typedef struct kv_quad_rows {
    const float *p;
    size_t p_step;
    int32_t n;
} kv_quad_rows;

/* ---- cells */

/* All bits where a probability of n queries is not 0. */
static inline void kv_quad_see(kv_vec_int seen[], const float *p, size_t p_step, int32_t n, int32_t n_cells) {
    const kv_vec_int magnitude = kv_vec_int_set(INT32_MAX);
    for (int32_t c = 0; c < n_cells; c += KV_LANES) {
        kv_vec_int bits = kv_vec_int_set(0);
        for (int32_t i = 0; i < n; i++)
            bits = kv_vec_int_or(bits, kv_vec_bits(kv_vec_load(p + (size_t)i * p_step + c)));
        seen[c / KV_LANES] = kv_vec_int_where(kv_vec_int_and(bits, magnitude));
    }
}

/* The signs of the scales as bytes. */
KV_TEMPLATE void kv_quad_flip(kv_quad_cells *c, const kv_quad_format *f, const kv_vec_int scale[]) {
    kv_vec_int negative[KV_QUAD_VECS], any = kv_vec_int_set(0);
    KV_REPEAT(i, KV_QUAD_VECS) { any = kv_vec_int_or(any, scale[i]); }
    c->flips = kv_vec_int_any_negative(any);
    c->corrects = c->flips || f->offset;
    if (!c->corrects) return;
    KV_REPEAT(i, KV_QUAD_VECS) {
        negative[i] = kv_vec_int_sub(kv_vec_int_set(0), kv_vec_int_shift_right(scale[i], 31));
        negative[i] = kv_vec_int_and(negative[i], kv_vec_int_set(255));
    }
    kv_bytes_pack(c->flip, negative);
    /* -offset, or 1 + offset */
    const kv_bytes plain = kv_bytes_set(-f->offset), other = kv_bytes_set(-f->offset ^ (1 + f->offset));
    for (size_t i = 0; i < KV_QUAD_CELLS; i += sizeof(kv_bytes)) {
        kv_bytes extra = kv_bytes_xor(plain, kv_bytes_and(kv_bytes_load(c->flip + i), other));
        memcpy(c->extra + i, &extra, sizeof extra);
    }
}

/* Scales and minima of the cells that are seen; false where one is not finite. */
KV_TEMPLATE bool kv_quad_load(kv_quad_cells *c, const kv_quad_format *f, const kv_accumulate_args *a,
                              const uint8_t *block, const kv_vec_int seen[]) {
    const kv_vec_int magnitude = kv_vec_int_set(INT32_MAX);
    kv_vec_int scale[KV_QUAD_VECS], largest = kv_vec_int_set(0);
    KV_REPEAT(i, KV_QUAD_VECS) {
        scale[i] = kv_vec_int_set(0), c->min[i] = c->scale[i] = kv_vec_set(0);
        if (i * KV_LANES >= a->n_cells) continue;
        const uint8_t *at = block + (size_t)(i / KV_QUAD_PARTS) * a->v_bytes;
        const int first = i % KV_QUAD_PARTS * KV_LANES;
        kv_vec value, min = kv_vec_set(0);
        f->scales(&value, &min, at, first);
        scale[i] = kv_vec_int_and(kv_vec_bits(value), seen[i]);
        c->scale[i] = kv_vec_abs(kv_vec_from_bits(scale[i]));
        c->min[i] = kv_vec_from_bits(kv_vec_int_and(kv_vec_bits(min), seen[i]));
        largest = kv_vec_int_max(largest, kv_vec_bits(c->scale[i]));
        if (f->has_min) largest = kv_vec_int_max(largest, kv_vec_int_and(kv_vec_bits(c->min[i]), magnitude));
    }
    c->has_min = f->has_min;
    c->levels = f->max > 64 ? KV_DOT_WEIGHT : 255;
    c->inverse = 1.0f / c->levels;
    kv_quad_flip(c, f, scale);
    /* 1 more in the exponent of Inf and NaN spills into the sign */
    return !kv_vec_int_any_negative(kv_vec_int_add(largest, kv_vec_int_set(0x00800000)));
}

/* ---- probabilities to weights */

static inline kv_vec_int kv_quad_add_floats(kv_vec_int a, kv_vec_int b) {
    return kv_vec_bits(kv_vec_add(kv_vec_from_bits(a), kv_vec_from_bits(b)));
}

/* Scaled probabilities are not negative: the order of their bits is theirs, and NaN is the largest. Below
 * 2^-100 the step stays as it is, so that its inverse is a number. */
KV_TEMPLATE void kv_quad_round(kv_quad_weights *out, int32_t row, const kv_quad_cells *c, kv_quad_rows r,
                               int n) {
    kv_vec x[4][KV_QUAD_VECS];
    kv_vec_int fold[4];
    KV_REPEAT(i, n) {
        KV_REPEAT(k, KV_QUAD_VECS) {
            x[i][k] = kv_vec_mul(kv_vec_load(r.p + (size_t)i * r.p_step + k * KV_LANES), c->scale[k]);
            fold[i] = k ? kv_vec_int_max(fold[i], kv_vec_bits(x[i][k])) : kv_vec_bits(x[i][k]);
        }
    }
    KV_REPEAT(i, 4 - n) { fold[n + i] = fold[0]; }
    kv_vec largest = kv_vec_from_bits(kv_vec_int_fold_4(fold, kv_vec_int_max));
    largest = kv_vec_max(kv_vec_set(0x1p-100f), largest);
    kv_vec_store(out->step + row, kv_vec_mul(largest, kv_vec_set(c->inverse)));
    kv_vec inverse = kv_vec_div(kv_vec_set(c->levels), largest);
    const kv_vec inverses[4] = {kv_vec_spread(inverse, 0), kv_vec_spread(inverse, 1),
                                kv_vec_spread(inverse, 2), kv_vec_spread(inverse, 3)};
    KV_REPEAT(i, n) { kv_bytes_round(out->w[row + i], x[i], inverses[i]); }
}

/* The sums of w * extra. */
KV_TEMPLATE void kv_quad_correct(kv_quad_weights *out, int32_t row, const kv_quad_cells *c, int n) {
    kv_vec_int fold[4];
    KV_REPEAT(i, n) {
        fold[i] = kv_vec_int_set(0);
        for (size_t k = 0; k < KV_QUAD_CELLS; k += sizeof(kv_bytes)) {
            kv_bytes w = kv_bytes_load(out->w[row + i] + k), extra = kv_bytes_load(c->extra + k);
            fold[i] = kv_dot_add_to(fold[i], &w, &extra, 1);
        }
    }
    KV_REPEAT(i, 4 - n) { fold[n + i] = fold[0]; }
    kv_vec_int sums = kv_vec_int_fold_4(fold, kv_vec_int_add);
    memcpy(out->extra + row, &sums, sizeof sums);
}

/* The sums of p * min. */
KV_TEMPLATE void kv_quad_minima(kv_quad_weights *out, int32_t row, const kv_quad_cells *c, kv_quad_rows r,
                                int n) {
    kv_vec_int fold[4];
    KV_REPEAT(i, n) {
        kv_vec sum = kv_vec_set(0);
        KV_REPEAT(k, KV_QUAD_VECS) {
            sum = kv_vec_fma(kv_vec_load(r.p + (size_t)i * r.p_step + k * KV_LANES), c->min[k], sum);
        }
        fold[i] = kv_vec_bits(sum);
    }
    KV_REPEAT(i, 4 - n) { fold[n + i] = fold[0]; }
    kv_vec_store(out->min + row, kv_vec_from_bits(kv_vec_int_fold_4(fold, kv_quad_add_floats)));
}

KV_TEMPLATE void kv_quad_weigh_n(kv_quad_weights *out, int32_t row, const kv_quad_cells *c, kv_quad_rows r,
                                 int n) {
    kv_quad_round(out, row, c, r, n);
    if (c->corrects)
        kv_quad_correct(out, row, c, n);
    else
        memset(out->extra + row, 0, sizeof(kv_vec));
    if (c->has_min) kv_quad_minima(out, row, c, r, n);
}

/* Makes rows [row, row + r.n) of the weights. */
static __attribute__((noinline)) void kv_quad_weigh(kv_quad_weights *out, int32_t row, const kv_quad_cells *c,
                                                    kv_quad_rows r) {
    switch (r.n) {
    case 1: kv_quad_weigh_n(out, row, c, r, 1); break;
    case 2: kv_quad_weigh_n(out, row, c, r, 2); break;
    case 3: kv_quad_weigh_n(out, row, c, r, 3); break;
    default: kv_quad_weigh_n(out, row, c, r, 4); break;
    }
}

/* As kv_quad_weigh for queries [first, first + n), n up to 4, of any number of cells. */
static inline void kv_quad_weigh_some(kv_quad_weights *out, int32_t row, const kv_quad_cells *c,
                                      const kv_accumulate_args *a, int32_t first, int32_t n) {
    const float *p = a->p + (size_t)first * a->p_step;
    if (a->n_cells == KV_QUAD_CELLS) {
        kv_quad_weigh(out, row, c, (kv_quad_rows){p, a->p_step, n});
        return;
    }
    float padded[4][KV_QUAD_CELLS] = {{0}};
    for (int32_t i = 0; i < n; i++)
        memcpy(padded[i], p + (size_t)i * a->p_step, (size_t)a->n_cells * sizeof *p);
    kv_quad_weigh(out, row, c, (kv_quad_rows){padded[0], KV_QUAD_CELLS, n});
}

/* ---- sums */

/* A part of a tile's block for the n queries whose weights begin at row `row`: sums[h][j] += dimensions of
 * half h. */
KV_TEMPLATE void kv_quad_tile(kv_vec_int sums[2][KV_QUAD_QUERIES], const kv_quad_format *f,
                              const kv_quad_cells *c, const uint8_t (*weights)[KV_QUAD_CELLS],
                              const uint8_t *block, int32_t part, int32_t tile, int n) {
    const int run = f->max > 64 ? 1 : f->max > 16 ? 64 / f->max : 4, at = kv_packed_at(tile * KV_QUAD_TILE);
    kv_bytes q[2][4];
    f->unpack(q, block, part);
    if (c->flips) {
        KV_REPEAT(i, 4) {
            kv_bytes flip = kv_bytes_set4((const int8_t *)c->flip + at + kv_packed_at(4 * i));
            q[0][i] = kv_bytes_xor(q[0][i], flip), q[1][i] = kv_bytes_xor(q[1][i], flip);
        }
    }
    KV_REPEAT(j, n) {
        kv_bytes w[4];
        KV_REPEAT(i, 4) { w[i] = kv_bytes_set4((const int8_t *)weights[j] + at + kv_packed_at(4 * i)); }
        KV_REPEAT(h, 2) {
            for (int i = 0; i < 4; i += run) sums[h][j] = kv_dot_add_to(sums[h][j], w + i, q[h] + i, run);
        }
    }
}

KV_TEMPLATE void kv_quad_sum(const kv_accumulate_args *a, const kv_quad_format *f, const kv_quad_cells *c,
                             const kv_quad_weights *weights, int32_t row, const uint8_t *block, float *o,
                             int n) {
    for (int32_t part = 0; part < KV_QUAD_PARTS; part++) {
        kv_vec_int sums[2][KV_QUAD_QUERIES];
        KV_REPEAT(j, n) { sums[0][j] = sums[1][j] = kv_vec_int_set(weights->extra[row + j]); }
        for (int32_t t = 0; t < a->n_cells / KV_QUAD_TILE; t++)
            kv_quad_tile(sums, f, c, weights->w + row, block + (size_t)t * a->v_bytes, part, t, n);
        KV_REPEAT(j, n) {
            kv_vec step = kv_vec_set(weights->step[row + j]);
            KV_REPEAT(h, 2) {
                float *at = o + (size_t)j * (size_t)a->head_dim + 16 * h + part * KV_LANES;
                kv_vec before = kv_vec_load(at);
                if (f->has_min) before = kv_vec_add(before, kv_vec_set(weights->min[row + j]));
                kv_vec_store(at, kv_vec_fma(kv_vec_from_int(sums[h][j]), step, before));
            }
        }
    }
}

/* One block for the n queries whose weights begin at row `row`; o is the first one's. */
KV_TEMPLATE void kv_quad_sums(const kv_accumulate_args *a, const kv_quad_format *f, const kv_quad_cells *c,
                              const kv_quad_weights *weights, int32_t row, const uint8_t *block, float *o,
                              int32_t n) {
    const size_t dim = (size_t)a->head_dim;
    for (; n >= KV_QUAD_QUERIES; n -= KV_QUAD_QUERIES) {
        kv_quad_sum(a, f, c, weights, row, block, o, KV_QUAD_QUERIES);
        row += KV_QUAD_QUERIES, o += KV_QUAD_QUERIES * dim;
    }
    if (KV_QUAD_QUERIES > 4 && n & 4) {
        kv_quad_sum(a, f, c, weights, row, block, o, 4);
        row += 4, o += 4 * dim;
    }
    if (n & 2) {
        kv_quad_sum(a, f, c, weights, row, block, o, 2);
        row += 2, o += 2 * dim;
    }
    if (n & 1) kv_quad_sum(a, f, c, weights, row, block, o, 1);
}

/* Queries [first, first + n) of n_blocks blocks, n * n_blocks <= KV_QUAD_ROWS; dimensions from d on. */
KV_TEMPLATE void kv_quad_blocks(const kv_accumulate_args *a, const kv_quad_format *f, const kv_quad_cells c[],
                                int32_t d, int32_t n_blocks, int32_t first, int32_t n) {
    const size_t bytes = (size_t)f->bytes * KV_QUAD_TILE;
    kv_quad_weights weights;
    for (int32_t b = 0; b < n_blocks; b++)
        for (int32_t i = 0; i < n; i += 4)
            kv_quad_weigh_some(&weights, b * n + i, &c[b], a, first + i, n - i < 4 ? n - i : 4);
    for (int32_t b = 0; b < n_blocks; b++)
        kv_quad_sums(a, f, &c[b], &weights, b * n,
                     (const uint8_t *)a->v + (size_t)(d / KV_QUAD_DIMS + b) * bytes,
                     a->o + (size_t)first * (size_t)a->head_dim + d + b * KV_QUAD_DIMS, n);
}

/* False where a scale is not finite. */
KV_TEMPLATE bool kv_quad_load_blocks(kv_quad_cells c[], const kv_quad_format *f, const kv_accumulate_args *a,
                                     int32_t d, int32_t n_blocks, const kv_vec_int seen[]) {
    const size_t bytes = (size_t)f->bytes * KV_QUAD_TILE;
    bool finite = true;
    for (int32_t b = 0; b < n_blocks; b++)
        finite &=
            kv_quad_load(&c[b], f, a, (const uint8_t *)a->v + (size_t)(d / KV_QUAD_DIMS + b) * bytes, seen);
    return finite;
}

KV_TEMPLATE void kv_accumulate_quad16(const kv_accumulate_args *a, const kv_quad_format f) {
    kv_vec_int all[KV_QUAD_VECS];
    kv_quad_cells c[KV_QUAD_BLOCKS];
    kv_quad_see(all, a->p, a->p_step, a->n_q, a->n_cells);
    const int32_t at_once = a->n_q <= KV_QUAD_FEW ? KV_QUAD_BLOCKS : 1;
    for (int32_t d = 0; d < a->head_dim; d += at_once * KV_QUAD_DIMS) {
        const int32_t rest = (a->head_dim - d) / KV_QUAD_DIMS, n_blocks = rest < at_once ? rest : at_once;
        const bool finite = kv_quad_load_blocks(c, &f, a, d, n_blocks, all);
        const int32_t step = finite ? KV_QUAD_ROWS : 1;
        for (int32_t i = 0; i < a->n_q; i += step) {
            if (!finite) {
                kv_vec_int own[KV_QUAD_VECS];
                kv_quad_see(own, a->p + (size_t)i * a->p_step, a->p_step, 1, a->n_cells);
                kv_quad_load_blocks(c, &f, a, d, n_blocks, own);
            }
            kv_quad_blocks(a, &f, c, d, n_blocks, i, a->n_q - i < step ? a->n_q - i : step);
        }
    }
}

/* Defines kv_accumulate_<dtype>_quad16_<isa> from the format kv_quad_<dtype>. */
#define KV_ACCUMULATE_QUAD16(dtype, isa)                                     \
    kv_accumulate_fn kv_accumulate_##dtype##_quad16_##isa;                   \
    void kv_accumulate_##dtype##_quad16_##isa(const kv_accumulate_args *a) { \
        kv_accumulate_quad16(a, kv_quad_##dtype());                          \
    }
