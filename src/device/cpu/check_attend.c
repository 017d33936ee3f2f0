/* check_attend.c: checks of score and accumulate. shape: n = head dimension, rows = cells, columns = queries,
 * gap = bytes between cells, or tiles of cells, which hold rubbish. Now and then a cell holds rubbish too. */
#include "base/memory.h"
#include "device/cpu/check_case.h"

#include <math.h>
#include <string.h>

enum {
    MAX_HEAD_DIM = 1024,
    MAX_CELLS = 64,
    MAX_CELL_BYTES = MAX_HEAD_DIM * 4,
    STEP = 80 /* numbers of s or p from one query to the next */
};

static const kv_layout *layout_of(const kv_check_case *c) {
    return c->kernel->layout ? c->kernel->layout : &kv_layout_rows;
}

static void pick(kv_check_case *c) {
    static const int32_t dims[] = {32,  64,  64,  80, 96, 112, 128, 160, 192,
                                   256, 320, 576, 1,  5,  24,  40,  65,  100};
    static const int32_t cells[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64};
    static const int32_t queries[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 30, 32, 33, 64};
    const size_t tile = (size_t)layout_of(c)->tile;
    c->shape.n = kv_check_choose(c, dims, sizeof dims / sizeof *dims);
    c->shape.n = (int64_t)kv_round_up((size_t)c->shape.n, (size_t)c->shape.dtype->block_elems);
    c->shape.rows = (int32_t)kv_check_choose(c, cells, sizeof cells / sizeof *cells);
    c->shape.rows = (int32_t)kv_round_up((size_t)c->shape.rows, tile);
    c->shape.columns = (int32_t)kv_check_choose(c, queries, sizeof queries / sizeof *queries);
    c->shape.gap = (int32_t)kv_check_between(c, 0, 1) * c->shape.dtype->block_bytes * (int32_t)tile;
    if (kv_check_chance(c, 0.3)) c->bad = (int32_t)kv_check_between(c, 0, c->shape.rows - 1);
}

static size_t head_bytes(const kv_check_case *c) { return kv_dtype_bytes(c->shape.dtype, c->shape.n); }
/* From one tile to the next; a cell is a tile in rows. */
static size_t tile_bytes(const kv_check_case *c) {
    return head_bytes(c) * (size_t)layout_of(c)->tile + (size_t)c->shape.gap;
}
static uint8_t *tile_of(const kv_check_case *c, int32_t i) {
    return c->in[0].at + (size_t)(i / layout_of(c)->tile) * tile_bytes(c);
}

/* Cell i, as it is coded in rows. */
static void put_cell(kv_check_case *c, int32_t i, const uint8_t *plain) {
    const kv_layout *l = layout_of(c);
    kv_layout_pack(l, c->shape.dtype, c->shape.n, tile_of(c, i), plain, i % l->tile, 1);
}
static void get_cell(const kv_check_case *c, int32_t i, uint8_t *plain) {
    const kv_layout *l = layout_of(c);
    kv_layout_unpack(l, c->shape.dtype, c->shape.n, plain, tile_of(c, i), i % l->tile, 1);
}

/* in[0] = cells. Past the last head nothing can be read. */
static kv_status setup_cells(kv_check_case *c) {
    const kv_check_shape *s = &c->shape;
    uint8_t plain[MAX_CELL_BYTES];
    kv_check_pattern pattern = c->pattern;
    if (pattern == KV_CHECK_SPECIAL) c->pattern = KV_CHECK_NORMAL; /* only rubbish has Inf and NaN */
    size_t bytes = tile_bytes(c) * (size_t)(s->rows / layout_of(c)->tile) - (size_t)s->gap;
    kv_status status = kv_fence_open(&c->in[0], bytes, s->dtype == &kv_dtype_f32 ? 4 : 2);
    for (int32_t i = 0; !status && i < s->rows; i++) {
        if (i == c->bad) continue;
        status = kv_check_coded(c, s->dtype, plain, s->n);
        if (!status) put_cell(c, i, plain);
    }
    return status;
}

static const float *cell(const kv_check_case *c, float *x, int32_t i) {
    uint8_t plain[MAX_CELL_BYTES];
    get_cell(c, i, plain);
    c->shape.dtype->decode(x, plain, c->shape.n);
    return x;
}

static void cost(const kv_check_case *c, double *bytes, double *macs) {
    *bytes = (double)head_bytes(c) * c->shape.rows;
    *macs = (double)c->shape.n * c->shape.rows * c->shape.columns;
}

/* ---- score: in[1] = queries */

static kv_status setup_score(kv_check_case *c) {
    KV_TRY(setup_cells(c));
    KV_TRY(kv_fence_open(&c->in[1], (size_t)(c->shape.n * c->shape.columns) * sizeof(float), 64));
    kv_check_floats(c, (float *)c->in[1].at, c->shape.n * c->shape.columns);
    /* the last row ends with its cells, rounded up to 16 */
    size_t floats = (size_t)(c->shape.columns - 1) * STEP + kv_round_up((size_t)c->shape.rows, 16);
    return kv_fence_open(&c->out, floats * sizeof(float), 4);
}

static void run_score(kv_check_case *c) {
    kv_score_args args = {.s = (float *)c->out.at,
                          .s_step = STEP,
                          .q = (const float *)c->in[1].at,
                          .n_q = c->shape.columns,
                          .head_dim = (int32_t)c->shape.n,
                          .k = c->in[0].at,
                          .k_bytes = tile_bytes(c),
                          .n_cells = c->shape.rows,
                          .dtype = c->shape.dtype};
    c->kernel->score(&args);
}

static bool is_rubbish(float x) {
    static const uint8_t rubbish[4] = {0xff, 0xff, 0xff, 0xff};
    return memcmp(&x, rubbish, sizeof x) == 0;
}

static void verify_score(kv_check_case *c) {
    const float *q = (const float *)c->in[1].at, *s = (const float *)c->out.at;
    for (int32_t i = 0; i < c->shape.rows; i++) {
        float x[MAX_HEAD_DIM];
        cell(c, x, i);
        for (int32_t j = 0; j < c->shape.columns && i != c->bad; j++) {
            double sum = 0, terms = 0;
            for (int64_t d = 0; d < c->shape.n; d++) {
                double product = (double)q[j * c->shape.n + d] * (double)x[d];
                sum += product;
                terms += fabs(product);
            }
            kv_check_close(c, j * STEP + i, s[j * STEP + i], sum, terms, (double)c->shape.n + 4);
        }
    }
    for (int32_t j = 0; j + 1 < c->shape.columns; j++)
        for (int32_t i = (int32_t)kv_round_up((size_t)c->shape.rows, 16); i < STEP; i++)
            if (!is_rubbish(s[j * STEP + i])) kv_check_fault(c, "wrote to cell %d of query %d", i, j);
}

#define SHAPES                                                                     \
    {                                                                              \
        {.n = 64, .rows = 64, .columns = 3}, {.n = 128, .rows = 64, .columns = 1}, \
            {.n = 128, .rows = 64, .columns = 4}, {                                \
            .n = 128, .rows = 64, .columns = 32                                    \
        }                                                                          \
    }

const kv_check_role kv_check_score = {.pick = pick,
                                      .setup = setup_score,
                                      .run = run_score,
                                      .verify = verify_score,
                                      .cost = cost,
                                      .bench = SHAPES};

/* ---- accumulate: in[1] = probabilities, in[2] = what the output was */

/* Some are 0: each in its own right, those of the rubbish cell, which only some queries see. */
static void probabilities(kv_check_case *c, float *p) {
    for (int32_t j = 0; j < c->shape.columns; j++)
        for (int32_t i = 0; i < c->shape.rows; i++) {
            bool zero = kv_check_chance(c, i == c->bad ? 0.8 : 0.1);
            p[j * STEP + i] =
                zero ? (kv_check_chance(c, 0.5) ? 0.0f : -0.0f) : (float)kv_random_unit(&c->random);
        }
}

static kv_status setup_accumulate(kv_check_case *c) {
    KV_TRY(setup_cells(c));
    size_t out_bytes = (size_t)(c->shape.n * c->shape.columns) * sizeof(float);
    KV_TRY(
        kv_fence_open(&c->in[1], (size_t)((c->shape.columns - 1) * STEP + c->shape.rows) * sizeof(float), 4));
    probabilities(c, (float *)c->in[1].at);
    KV_TRY(kv_fence_open(&c->in[2], out_bytes, 4));
    kv_check_floats(c, (float *)c->in[2].at, c->shape.n * c->shape.columns);
    KV_TRY(kv_fence_open(&c->out, out_bytes, 64));
    memcpy(c->out.at, c->in[2].at, out_bytes);
    return KVANT_OK;
}

static void run_accumulate(kv_check_case *c) {
    kv_accumulate_args args = {.o = (float *)c->out.at,
                               .p = (const float *)c->in[1].at,
                               .p_step = STEP,
                               .n_q = c->shape.columns,
                               .head_dim = (int32_t)c->shape.n,
                               .v = c->in[0].at,
                               .v_bytes = tile_bytes(c),
                               .n_cells = c->shape.rows,
                               .dtype = c->shape.dtype};
    c->kernel->accumulate(&args);
}

/* Half of the range of numbers that a block with the scales of this one can code. */
static double reach(const kv_dtype *d, const uint8_t *block) {
    static const uint8_t fill[] = {0, 0xff, 0x80, 0x7f};
    uint8_t filled[MAX_CELL_BYTES];
    float x[MAX_HEAD_DIM];
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < sizeof fill; i++) {
        memset(filled, fill[i], (size_t)d->block_bytes);
        memcpy(filled, block, (size_t)d->plane_bytes[0]);
        d->decode(x, filled, d->block_elems);
        for (int32_t k = 0; k < d->block_elems; k++) low = fmin(low, x[k]), high = fmax(high, x[k]);
    }
    return (high - low) / 2;
}

/* What rounding p to whole steps may cost each output of a query, see kernel.h. Codes need not lie evenly
 * around 0: -8 to 7 reach 8/7.5 of half their range. */
static void add_steps(const kv_check_case *c, const float *p, double bound[]) {
    static const double uneven = 8 / 7.5;
    const kv_dtype *d = c->shape.dtype;
    const int levels = c->kernel->cpu & KV_CPU_AVX512 ? 255 : 127;
    uint8_t plain[MAX_CELL_BYTES];
    double largest[MAX_HEAD_DIM] = {0};
    int n_seen = 0;
    for (int32_t i = 0; i < c->shape.rows; i++) {
        if (p[i] == 0) continue;
        n_seen++;
        get_cell(c, i, plain);
        for (int64_t b = 0; b < c->shape.n / d->block_elems; b++)
            largest[b] = fmax(largest[b], (double)p[i] * reach(d, plain + b * d->block_bytes));
    }
    for (int64_t k = 0; k < c->shape.n; k++)
        bound[k] += 0.5 * n_seen * uneven * largest[k / d->block_elems] / levels;
}

static void verify_query(kv_check_case *c, int32_t j) {
    const float *p = (const float *)c->in[1].at + j * STEP;
    const float *before = (const float *)c->in[2].at + j * c->shape.n, *o = (const float *)c->out.at;
    static const double k = MAX_CELLS + 4;
    double sum[MAX_HEAD_DIM], terms[MAX_HEAD_DIM], steps[MAX_HEAD_DIM] = {0};
    for (int64_t d = 0; d < c->shape.n; d++) {
        sum[d] = (double)before[d];
        terms[d] = fabs(sum[d]);
    }
    for (int32_t i = 0; i < c->shape.rows; i++) {
        float x[MAX_HEAD_DIM];
        cell(c, x, i);
        for (int64_t d = 0; d < c->shape.n && p[i] != 0; d++) {
            double product = (double)p[i] * (double)x[d];
            sum[d] += product;
            terms[d] += fabs(product);
        }
    }
    if (c->kernel->b) add_steps(c, p, steps);
    for (int64_t d = 0; d < c->shape.n; d++) {
        if (terms[d] > 1e38) continue; /* may overflow on the way */
        kv_check_within(c, j * c->shape.n + d, o[j * c->shape.n + d], sum[d],
                        k * (0x1p-24 * terms[d] + 0x1p-149) + steps[d]);
    }
}

static void verify_accumulate(kv_check_case *c) {
    for (int32_t j = 0; j < c->shape.columns; j++) verify_query(c, j);
}

const kv_check_role kv_check_accumulate = {.pick = pick,
                                           .setup = setup_accumulate,
                                           .run = run_accumulate,
                                           .verify = verify_accumulate,
                                           .cost = cost,
                                           .bench = SHAPES};
