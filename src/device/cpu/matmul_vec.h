/* matmul_vec.h: the skeleton of the matmul kernels for weights in quantized blocks and activations in a8. The
 * lanes of a vector are rows of a tile of tile16x4, KV_LANES at a time. A format brings what is particular to
 * a dtype: the scales of a block and how 32 quants of each row become bytes; all of it is inlined into one
 * kernel.
 *
 *     for each tile: for a few columns of x at a time: for each block: unpack once, then for each column
 *         integer sum over the quants that share a scale     exact
 *         y += sum * (scale * x.scale) [+ min * x.sum]       f32
 *
 * A column's sum is built in the same order whatever n_x is: results do not depend on the shape of the batch.
 */
#pragma once

#include "device/cpu/dot.h"
#include "device/cpu/kernel.h"
#include "dtype/a8.h"

enum {
    KV_QUADS = 8,                    /* vectors of 4 bytes a row in a step of 32 elements */
    KV_MAX_SUBS = 16,                /* of a block */
    KV_MAX_COLUMNS = KV_LANES / 2,   /* multiplied at a time: what the registers hold */
    KV_TILE_QUAD = 4 * KV_TILE_ROWS, /* bytes from one 4-byte turn to the next in a tile */
};

#define KV_PLANE(dtype, field) offsetof(kv_##dtype##_block, field)

/* A block of a tile, seen from the rows that a vector holds. Planes are named by their offset in a row's
 * block. */
typedef struct kv_tile_block {
    const uint8_t *at;
    int32_t row; /* the first: 0, or 8 where vectors hold 8 rows */
} kv_tile_block;

/* The same block from row `more` of them on. */
KV_TEMPLATE kv_tile_block kv_tile_rows(kv_tile_block b, int32_t more) {
    return (kv_tile_block){b.at, b.row + more};
}

/* 4-byte turn i of a plane; a plane of one f16; one of two f16; one of a 16-bit integer. */
KV_TEMPLATE kv_bytes kv_tile_quad(kv_tile_block b, size_t plane, int32_t i) {
    return kv_bytes_load(b.at + plane * KV_TILE_ROWS + i * KV_TILE_QUAD + 4 * b.row);
}
KV_TEMPLATE kv_vec kv_tile_half(kv_tile_block b, size_t plane) {
    return kv_vec_load_half(b.at + plane * KV_TILE_ROWS + 2 * b.row);
}
KV_TEMPLATE void kv_tile_half_pair(kv_vec *first, kv_vec *second, kv_tile_block b, size_t plane) {
    kv_vec_load_half_pairs(first, second, b.at + plane * KV_TILE_ROWS + 4 * b.row);
}
KV_TEMPLATE kv_vec_int kv_tile_short(kv_tile_block b, size_t plane) {
    return kv_vec_load_u16_n(b.at + plane * KV_TILE_ROWS + 2 * b.row, KV_LANES);
}

/* The scales of a block, rows in the lanes, one vector for each sub-block: x = scale * (q - offset) + min. */
typedef struct kv_tile_scales {
    kv_vec scale[KV_MAX_SUBS], min[KV_MAX_SUBS];
} kv_tile_scales;

typedef struct kv_tile_format {
    int32_t elems;     /* of a block */
    int32_t bytes;     /* of a row's block */
    int32_t sub_elems; /* numbers that share a scale: 32 or 16 */
    int32_t steps;     /* 32-element steps in a group; unpack gets its step as a constant: 1, 2 or 4 */
    int32_t max;       /* the largest q */
    int32_t offset;
    bool is_signed; /* q is from -128 to 127, offset is 0 */
    bool has_min;
    void (*scales)(kv_tile_scales *s, kv_tile_block b);
    /* Elements 32 * (group * steps + step) and on; lane r of q[i] holds q of elements 4 i to 4 i + 3 of row
     * r. */
    void (*unpack)(kv_bytes q[KV_QUADS], kv_tile_block b, int32_t group, int32_t step);
} kv_tile_format;

/* Signed weights for a dot product that wants them unsigned: the flipped sign bit adds 128. */
KV_TEMPLATE int32_t kv_tile_offset(const kv_tile_format *f) {
    return f->is_signed && !KV_DOT_SIGNED ? 128 : f->offset;
}

/* The minimum of a sub-block, an offset of its quants included. */
KV_TEMPLATE kv_vec kv_tile_min(const kv_tile_format *f, const kv_tile_scales *s, int32_t sub) {
    if (f->has_min) return s->min[sub];
    return kv_vec_mul(s->scale[sub], kv_vec_set((float)-kv_tile_offset(f)));
}

/* Sums of x's quants over half blocks, in memory to be broadcast from, where 16 elements share a scale: as
 * f32 for their minimum, or -offset * sum as integers. With 32 elements, x.sum serves both. */
typedef union kv_column_sums {
    int32_t corrections[KV_LANES];
    float sums[KV_LANES];
} kv_column_sums;

KV_TEMPLATE void kv_column_sums_init(kv_column_sums *out, const kv_tile_format *f,
                                     const kv_a8_block *const x[], int n) {
    const int8_t *quants[KV_MAX_COLUMNS];
    KV_REPEAT(j, n) { quants[j] = x[j]->quants; }
    if (f->has_min) {
        kv_vec_store(out->sums, kv_vec_from_int(kv_half_sums(quants, n, 1)));
    } else {
        kv_vec_int v = kv_vec_int_sub(kv_vec_int_set(0), kv_half_sums(quants, n, f->offset));
        memcpy(out->corrections, &v, sizeof v);
    }
}

/* sums[j] = the dot product of `quads` vectors of weights with column j from quant `at` on. */
KV_TEMPLATE void kv_dot_columns(kv_vec_int sums[], int n, const kv_tile_format *f, const kv_bytes q[],
                                int quads, const kv_a8_block *const x[], int at) {
    const int capacity = kv_dot_capacity(f->is_signed ? 128 : f->max),
              run = capacity < quads ? capacity : quads;
    const int runs = quads / run;
    const bool is_signed = f->is_signed;
    KV_REPEAT(r, runs) {
        kv_dot dot[KV_MAX_COLUMNS];
        KV_REPEAT(i, run) {
            kv_bytes w = q[r * run + i];
            KV_REPEAT(j, n) {
                kv_bytes four = kv_bytes_set4(x[j]->quants + at + 4 * (r * run + i));
                dot[j] = i == 0 ? kv_dot_first(w, four, is_signed) : kv_dot_add(dot[j], w, four, is_signed);
            }
        }
        KV_REPEAT(j, n) {
            kv_vec_int sum = kv_dot_sum(dot[j]);
            sums[j] = r == 0 ? sum : kv_vec_int_add(sums[j], sum);
        }
    }
}

/* One step of 32 elements for n columns, whose blocks are x[j]. */
KV_TEMPLATE void kv_tile_step(kv_vec y[], int n, const kv_tile_format *f, const kv_tile_scales *s,
                              kv_tile_block b, const kv_a8_block *const x[], int32_t group, int32_t step) {
    kv_bytes q[KV_QUADS];
    f->unpack(q, b, group, step);
    if (f->is_signed && !KV_DOT_SIGNED) {
        KV_REPEAT(i, KV_QUADS) { q[i] = kv_bytes_xor(q[i], kv_bytes_set(128)); }
    }
    const int subs = 32 / f->sub_elems, quads = KV_QUADS / subs;
    const int32_t first_sub = (group * f->steps + step) * subs;
    kv_column_sums sums;
    if (subs == 2) kv_column_sums_init(&sums, f, x, n);
    KV_REPEAT(h, subs) {
        kv_vec_int dots[KV_MAX_COLUMNS];
        kv_dot_columns(dots, n, f, q + h * quads, quads, x, 4 * h * quads);
        kv_vec scale = s->scale[first_sub + h], min = kv_tile_min(f, s, first_sub + h);
        KV_REPEAT(j, n) {
            const int sum = kv_half_sum_at(j) + h * KV_HALF_SUM;
            if (subs == 2 && f->offset)
                dots[j] = kv_vec_int_add(dots[j], kv_vec_int_set(sums.corrections[sum]));
            kv_vec x_scale = kv_vec_set(x[j]->scale);
            y[j] = kv_vec_fma(kv_vec_mul(kv_vec_from_int(dots[j]), scale), x_scale, y[j]);
            if (subs == 2 && f->has_min)
                y[j] = kv_vec_fma(kv_vec_mul(min, kv_vec_set(sums.sums[sum])), x_scale, y[j]);
            if (subs == 1 && (f->has_min || kv_tile_offset(f)))
                y[j] = kv_vec_fma(min, kv_vec_set(x[j]->sum), y[j]);
        }
    }
}

/* Asks for a whole block in the order of its bytes. The planes of a large one are walked side by side, which
 * memory answers at a third of its rate. */
KV_TEMPLATE void kv_tile_fetch(const kv_tile_format *f, const uint8_t *block) {
    if (f->elems == 32) return;
#pragma GCC unroll 1
    for (int32_t i = 0; i < f->bytes * KV_TILE_ROWS; i += 64) __builtin_prefetch(block + i);
}

/* One block of `parts` vectors of rows for n columns; x is the first one's, the next are x_bytes apart. */
KV_TEMPLATE void kv_tile_add_block(kv_vec y[][KV_MAX_COLUMNS], int parts, int n, const kv_tile_format *f,
                                   kv_tile_block b, const uint8_t *x, size_t x_bytes) {
    kv_tile_scales s[KV_TILE_ROWS / KV_LANES];
    KV_REPEAT(p, parts) { f->scales(&s[p], kv_tile_rows(b, p * KV_LANES)); }
    const int32_t steps = f->steps, groups = f->elems / 32 / steps;
    for (int32_t group = 0; group < groups; group++) {
        KV_REPEAT(step, steps) {
            const kv_a8_block *at[KV_MAX_COLUMNS];
            KV_REPEAT(j, n) { at[j] = (const kv_a8_block *)(x + (size_t)j * x_bytes); }
            KV_REPEAT(p, parts) {
                kv_tile_step(y[p], n, f, &s[p], kv_tile_rows(b, p * KV_LANES), at, group, step);
            }
            x += sizeof(kv_a8_block);
        }
    }
}

/* Columns [first, first + n) times `rows` rows of a tile from `row` on. */
KV_TEMPLATE void kv_tile_columns(const kv_matmul_args *a, const kv_tile_format *f, int32_t tile, int32_t row,
                                 int32_t rows, int32_t first, int n) {
    kv_tile_block b = {(const uint8_t *)a->w + (size_t)tile * a->tile_bytes, row};
    const uint8_t *x = (const uint8_t *)a->x + (size_t)first * a->x_bytes;
    const int parts = rows / KV_LANES;
    kv_vec y[KV_TILE_ROWS / KV_LANES][KV_MAX_COLUMNS];
    KV_REPEAT(p, parts) {
        KV_REPEAT(j, n) { y[p][j] = kv_vec_set(0); }
    }
    for (int64_t c = 0; c < a->cols; c += f->elems) {
        if (first == 0 && row == 0) kv_tile_fetch(f, b.at);
        kv_tile_add_block(y, parts, n, f, b, x, a->x_bytes);
        b.at += f->bytes * KV_TILE_ROWS;
        x += f->elems / KV_A8_ELEMS * (int32_t)sizeof(kv_a8_block);
    }
    float *out = a->y + (size_t)first * a->y_step + (size_t)tile * KV_TILE_ROWS + row;
    KV_REPEAT(p, parts) {
        KV_REPEAT(j, n) { kv_vec_store(out + (size_t)j * a->y_step + p * KV_LANES, y[p][j]); }
    }
}

/* Many columns leave no registers for a second vector of rows. */
KV_TEMPLATE void kv_tile_matmul(const kv_matmul_args *a, const kv_tile_format f) {
    for (int32_t tile = 0; tile < a->n_tiles; tile++) {
        int32_t j = 0;
        for (; j + KV_MAX_COLUMNS <= a->n_x; j += KV_MAX_COLUMNS)
            for (int32_t row = 0; row < KV_TILE_ROWS; row += KV_LANES)
                kv_tile_columns(a, &f, tile, row, KV_LANES, j, KV_MAX_COLUMNS);
        if (KV_MAX_COLUMNS > 4 && a->n_x & 4) kv_tile_columns(a, &f, tile, 0, KV_TILE_ROWS, j, 4), j += 4;
        if (a->n_x & 2) kv_tile_columns(a, &f, tile, 0, KV_TILE_ROWS, j, 2), j += 2;
        if (a->n_x & 1) kv_tile_columns(a, &f, tile, 0, KV_TILE_ROWS, j, 1);
    }
}

/* Defines kv_matmul_<dtype>_tile16x4_<isa> from the format kv_tile_<dtype>. */
#define KV_MATMUL(dtype, isa)                        \
    kv_matmul_fn kv_matmul_##dtype##_tile16x4_##isa; \
    void kv_matmul_##dtype##_tile16x4_##isa(const kv_matmul_args *a) { kv_tile_matmul(a, kv_tile_##dtype()); }
