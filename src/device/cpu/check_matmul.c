/* check_matmul.c: checks of matmul over tile16x4 and of panel. shape: n = columns of the weights, rows =
 * tiles, columns = rows of activations, gap = numbers between rows of y (matmul) or of x and y (panel). */
#include "base/memory.h"
#include "device/cpu/check_case.h"

#include <math.h>
#include <string.h>

enum { MAX_COLS = 4096 };

static const int32_t activations[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 31, 33};
enum { N_ACTIVATIONS = sizeof activations / sizeof *activations };

/* Compares y[at], `before` plus the product of a row w of the weights and a row x, both decoded. A weight of
 * a block is made of parts as large as the largest of the block (a scaled quant and a minimum), which a
 * kernel multiplies apart. */
static void verify_row(kv_check_case *c, int64_t at, const float *w, int32_t block, const float *x,
                       double before) {
    double sum = before, terms = fabs(before);
    for (int64_t i = 0; i < c->shape.n; i += block) {
        double largest = 0;
        for (int64_t j = i; j < i + block; j++) largest = fmax(largest, fabs((double)w[j]));
        for (int64_t j = i; j < i + block; j++) {
            sum += (double)w[j] * (double)x[j];
            terms += largest * fabs((double)x[j]);
        }
    }
    kv_check_close(c, at, ((const float *)c->out.at)[at], sum, terms, (double)c->shape.n + 16);
}

/* ---- matmul: in[0] = tiles, in[1] = activations, in[2] = the weights as plain rows */

static void pick_matmul(kv_check_case *c) {
    int64_t block = c->kernel->a->block_elems > c->kernel->b->block_elems ? c->kernel->a->block_elems
                                                                          : c->kernel->b->block_elems;
    c->shape.n = block * kv_check_between(c, 1, 5);
    c->shape.rows = (int32_t)kv_check_between(c, 1, 3);
    c->shape.columns = (int32_t)kv_check_choose(c, activations, N_ACTIVATIONS);
    c->shape.gap = (int32_t)kv_check_between(c, 0, 1) * 5;
}

static size_t y_step(const kv_check_case *c) { return (size_t)(c->shape.rows * KV_TILE_ROWS + c->shape.gap); }

static kv_status setup_matmul(kv_check_case *c) {
    const kv_kernel *k = c->kernel;
    int32_t rows = c->shape.rows * KV_TILE_ROWS;
    size_t w_row = kv_dtype_bytes(k->a, c->shape.n), x_row = kv_dtype_bytes(k->b, c->shape.n);
    if (c->pattern == KV_CHECK_SPECIAL) c->pattern = KV_CHECK_NORMAL; /* neither operand has Inf or NaN */
    KV_TRY(kv_fence_open(&c->in[2], w_row * (size_t)rows, 4));
    KV_TRY(kv_check_coded(c, k->a, c->in[2].at, c->shape.n * rows));
    KV_TRY(kv_fence_open(&c->in[0], w_row * (size_t)rows, 64));
    kv_layout_pack(k->layout, k->a, c->shape.n, c->in[0].at, c->in[2].at, 0, rows);
    KV_TRY(kv_fence_open(&c->in[1], x_row * (size_t)c->shape.columns, 4));
    float *x = kv_alloc((size_t)(c->shape.n * c->shape.columns), sizeof *x);
    if (!x) return KVANT_NO_MEMORY;
    kv_check_floats(c, x, c->shape.n * c->shape.columns);
    k->b->encode(c->in[1].at, x, c->shape.n * c->shape.columns);
    kv_free(x);
    return kv_fence_open(&c->out, (y_step(c) * (size_t)(c->shape.columns - 1) + (size_t)rows) * sizeof(float),
                         4);
}

static void run_matmul(kv_check_case *c) {
    const kv_kernel *k = c->kernel;
    kv_matmul_args args = {.w = c->in[0].at,
                           .tile_bytes = kv_layout_tile_bytes(k->layout, k->a, c->shape.n),
                           .n_tiles = c->shape.rows,
                           .cols = c->shape.n,
                           .x = c->in[1].at,
                           .x_bytes = kv_dtype_bytes(k->b, c->shape.n),
                           .n_x = c->shape.columns,
                           .y = (float *)c->out.at,
                           .y_step = y_step(c)};
    k->matmul(&args);
}

static void verify_matmul(kv_check_case *c) {
    const kv_kernel *k = c->kernel;
    float w[MAX_COLS], x[MAX_COLS];
    for (int32_t r = 0; r < c->shape.rows * KV_TILE_ROWS; r++) {
        k->a->decode(w, c->in[2].at + (size_t)r * kv_dtype_bytes(k->a, c->shape.n), c->shape.n);
        for (int32_t j = 0; j < c->shape.columns; j++) {
            k->b->decode(x, c->in[1].at + (size_t)j * kv_dtype_bytes(k->b, c->shape.n), c->shape.n);
            verify_row(c, (int64_t)((size_t)j * y_step(c)) + r, w, k->a->block_elems, x, 0);
        }
    }
}

static void cost_matmul(const kv_check_case *c, double *bytes, double *macs) {
    *bytes = (double)c->in[0].bytes;
    *macs = (double)c->shape.n * c->shape.rows * KV_TILE_ROWS * c->shape.columns;
}

const kv_check_role kv_check_matmul = {.pick = pick_matmul,
                                       .setup = setup_matmul,
                                       .run = run_matmul,
                                       .verify = verify_matmul,
                                       .cost = cost_matmul,
                                       .bench = {{.n = 2048, .rows = 16, .columns = 1},
                                                 {.n = 2048, .rows = 16, .columns = 8},
                                                 {.n = 2048, .rows = 16, .columns = 64}}};

/* ---- panel: in[0] = the panel, in[1] = activations, in[2] = what y was; n numbers in a row of x, 16 in one
 * of y */

static void pick_panel(kv_check_case *c) {
    c->shape = (kv_check_shape){.n = kv_check_between(c, 1, 100),
                                .columns = (int32_t)kv_check_choose(c, activations, N_ACTIVATIONS),
                                .gap = (int32_t)kv_check_between(c, 0, 1) * 3};
}

static size_t panel_step(const kv_check_case *c) { return (size_t)(KV_TILE_ROWS + c->shape.gap); }
static size_t panel_x_step(const kv_check_case *c) { return (size_t)(c->shape.n + c->shape.gap); }

static kv_status setup_panel(kv_check_case *c) {
    size_t rows = (size_t)c->shape.columns, n = (size_t)c->shape.n;
    if (c->pattern == KV_CHECK_SPECIAL) c->pattern = KV_CHECK_NORMAL;
    KV_TRY(kv_fence_open(&c->in[0], n * KV_TILE_ROWS * sizeof(float), 64));
    kv_check_floats(c, (float *)c->in[0].at, c->shape.n * KV_TILE_ROWS);
    KV_TRY(kv_fence_open(&c->in[1], (panel_x_step(c) * (rows - 1) + n) * sizeof(float), 4));
    for (size_t j = 0; j < rows; j++)
        kv_check_floats(c, (float *)c->in[1].at + j * panel_x_step(c), c->shape.n);
    size_t y_bytes = (panel_step(c) * (rows - 1) + KV_TILE_ROWS) * sizeof(float);
    KV_TRY(kv_fence_open(&c->in[2], y_bytes, 4));
    for (size_t j = 0; j < rows; j++)
        kv_check_floats(c, (float *)c->in[2].at + j * panel_step(c), KV_TILE_ROWS);
    KV_TRY(kv_fence_open(&c->out, y_bytes, 4));
    memcpy(c->out.at, c->in[2].at, y_bytes);
    return KVANT_OK;
}

static void run_panel(kv_check_case *c) {
    kv_panel_args args = {.w = (const float *)c->in[0].at,
                          .cols = c->shape.n,
                          .x = (const float *)c->in[1].at,
                          .x_step = panel_x_step(c),
                          .n_x = c->shape.columns,
                          .y = (float *)c->out.at,
                          .y_step = panel_step(c)};
    c->kernel->panel(&args);
}

static void verify_panel(kv_check_case *c) {
    const float *panel = (const float *)c->in[0].at, *before = (const float *)c->in[2].at;
    for (int32_t r = 0; r < KV_TILE_ROWS; r++) {
        float w[MAX_COLS];
        for (int64_t i = 0; i < c->shape.n; i++) w[i] = panel[i * KV_TILE_ROWS + r];
        for (int32_t j = 0; j < c->shape.columns; j++) {
            int64_t at = (int64_t)((size_t)j * panel_step(c)) + r;
            verify_row(c, at, w, 1, (const float *)c->in[1].at + (size_t)j * panel_x_step(c),
                       (double)before[at]);
        }
    }
}

static void cost_panel(const kv_check_case *c, double *bytes, double *macs) {
    *bytes = (double)c->in[0].bytes;
    *macs = (double)c->shape.n * KV_TILE_ROWS * c->shape.columns;
}

const kv_check_role kv_check_panel = {.pick = pick_panel,
                                      .setup = setup_panel,
                                      .run = run_panel,
                                      .verify = verify_panel,
                                      .cost = cost_panel,
                                      .bench = {{.n = 256, .columns = 1}, {.n = 256, .columns = 64}}};
