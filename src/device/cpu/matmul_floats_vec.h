/* matmul_floats_vec.h: the matmul kernels for weights that are floating point numbers in tile16x4, which then
 * is 16 rows side by side for each column, and activations in f32; and the panel kernel, which is the same
 * over f32 and adds to y. Each sum is taken over even and odd columns apart, in the same order whatever n_x
 * is. */
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/vec_dtype.h"

enum { KV_FLOAT_COLUMNS = KV_LANES / 2 }; /* of x, multiplied at a time */

typedef struct kv_floats_format {
    kv_vec_row_fn *load;
    int32_t bytes; /* of a number */
    bool adds;     /* to what y holds */
} kv_floats_format;

/* One column of the weights times the numbers of n rows of x. */
KV_TEMPLATE void kv_floats_step(kv_vec sums[][KV_FLOAT_COLUMNS], int n, int parts, const kv_floats_format *f,
                                const uint8_t *w, const float *x, size_t x_step) {
    KV_REPEAT(p, parts) {
        kv_vec v = f->load(w, p * KV_LANES, KV_LANES);
        KV_REPEAT(j, n) { sums[p][j] = kv_vec_fma(v, kv_vec_set(x[(size_t)j * x_step]), sums[p][j]); }
    }
}

/* Rows [first, first + n) of x times `rows` rows of a tile from `row` on. */
KV_TEMPLATE void kv_floats_columns(const kv_matmul_args *a, const kv_floats_format *f, int32_t tile,
                                   int32_t row, int32_t rows, int32_t first, int n) {
    const uint8_t *w = (const uint8_t *)a->w + (size_t)tile * a->tile_bytes + row * f->bytes;
    const size_t x_step = a->x_bytes / sizeof(float), column = (size_t)f->bytes * KV_TILE_ROWS;
    const float *x = (const float *)a->x + (size_t)first * x_step;
    const int parts = rows / KV_LANES;
    kv_vec even[KV_TILE_ROWS / KV_LANES][KV_FLOAT_COLUMNS], odd[KV_TILE_ROWS / KV_LANES][KV_FLOAT_COLUMNS];
    KV_REPEAT(p, parts) {
        KV_REPEAT(j, n) { even[p][j] = odd[p][j] = kv_vec_set(0); }
    }
    int64_t c = 0;
    for (; c + 2 <= a->cols; c += 2, w += 2 * column, x += 2) {
        kv_floats_step(even, n, parts, f, w, x, x_step);
        kv_floats_step(odd, n, parts, f, w + column, x + 1, x_step);
    }
    if (c < a->cols) kv_floats_step(even, n, parts, f, w, x, x_step);
    float *y = a->y + (size_t)first * a->y_step + (size_t)tile * KV_TILE_ROWS + row;
    KV_REPEAT(p, parts) {
        KV_REPEAT(j, n) {
            float *at = y + (size_t)j * a->y_step + p * KV_LANES;
            kv_vec sum = kv_vec_add(even[p][j], odd[p][j]);
            kv_vec_store(at, f->adds ? kv_vec_add(kv_vec_load(at), sum) : sum);
        }
    }
}

/* Many rows of x leave no registers for a second vector of weights. */
KV_TEMPLATE void kv_floats_matmul(const kv_matmul_args *a, const kv_floats_format f) {
    for (int32_t tile = 0; tile < a->n_tiles; tile++) {
        int32_t j = 0;
        for (; j + KV_FLOAT_COLUMNS <= a->n_x; j += KV_FLOAT_COLUMNS)
            for (int32_t row = 0; row < KV_TILE_ROWS; row += KV_LANES)
                kv_floats_columns(a, &f, tile, row, KV_LANES, j, KV_FLOAT_COLUMNS);
        if (KV_FLOAT_COLUMNS > 4 && a->n_x & 4) kv_floats_columns(a, &f, tile, 0, KV_TILE_ROWS, j, 4), j += 4;
        if (a->n_x & 2) kv_floats_columns(a, &f, tile, 0, KV_TILE_ROWS, j, 2), j += 2;
        if (a->n_x & 1) kv_floats_columns(a, &f, tile, 0, KV_TILE_ROWS, j, 1);
    }
}

KV_TEMPLATE void kv_floats_panel(const kv_panel_args *a) {
    kv_matmul_args args = {.w = a->w,
                           .n_tiles = 1,
                           .cols = a->cols,
                           .x = a->x,
                           .x_bytes = a->x_step * sizeof(float),
                           .n_x = a->n_x,
                           .y = a->y,
                           .y_step = a->y_step};
    kv_floats_matmul(&args, (kv_floats_format){.load = kv_vec_row_f32, .bytes = sizeof(float), .adds = true});
}

/* Defines kv_matmul_<dtype>_tile16x4_<isa>. */
#define KV_MATMUL_FLOATS(dtype, size, isa)                                                  \
    kv_matmul_fn kv_matmul_##dtype##_tile16x4_##isa;                                        \
    void kv_matmul_##dtype##_tile16x4_##isa(const kv_matmul_args *a) {                      \
        kv_floats_matmul(a, (kv_floats_format){.load = kv_vec_row_##dtype, .bytes = size}); \
    }
