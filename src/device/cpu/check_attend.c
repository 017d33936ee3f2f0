/* check_attend.c: checks of score and accumulate over the layout rows. shape: n = head dimension, rows =
 * cells, columns = queries, gap = bytes between cells, which hold rubbish. Now and then a cell holds rubbish
 * too. */
#include "base/memory.h"
#include "device/cpu/check_case.h"

#include <math.h>
#include <string.h>

enum { MAX_HEAD_DIM = 1024, MAX_CELLS = 64, STEP = 80 /* numbers of s or p from one query to the next */ };

static void pick(kv_check_case *c) {
    static const int32_t dims[] = {32,  64,  64,  80, 96, 112, 128, 160, 192,
                                   256, 320, 576, 1,  5,  24,  40,  65,  100};
    static const int32_t cells[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64};
    static const int32_t queries[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 30, 32, 33, 64};
    c->shape.n = kv_check_choose(c, dims, sizeof dims / sizeof *dims);
    c->shape.n = (int64_t)kv_round_up((size_t)c->shape.n, (size_t)c->shape.dtype->block_elems);
    c->shape.rows = (int32_t)kv_check_choose(c, cells, sizeof cells / sizeof *cells);
    c->shape.columns = (int32_t)kv_check_choose(c, queries, sizeof queries / sizeof *queries);
    c->shape.gap = (int32_t)kv_check_between(c, 0, 1) * c->shape.dtype->block_bytes;
    if (kv_check_chance(c, 0.3)) c->bad = (int32_t)kv_check_between(c, 0, c->shape.rows - 1);
}

static size_t head_bytes(const kv_check_case *c) { return kv_dtype_bytes(c->shape.dtype, c->shape.n); }
static size_t cell_bytes(const kv_check_case *c) { return head_bytes(c) + (size_t)c->shape.gap; }

/* in[0] = cells. Past the last head nothing can be read. */
static kv_status setup_cells(kv_check_case *c) {
    const kv_check_shape *s = &c->shape;
    kv_check_pattern pattern = c->pattern;
    if (pattern == KV_CHECK_SPECIAL) c->pattern = KV_CHECK_NORMAL; /* only rubbish has Inf and NaN */
    kv_status status = kv_fence_open(&c->in[0], cell_bytes(c) * (size_t)(s->rows - 1) + head_bytes(c),
                                     s->dtype == &kv_dtype_f32 ? 4 : 2);
    for (int32_t i = 0; !status && i < s->rows; i++)
        if (i != c->bad) status = kv_check_coded(c, s->dtype, c->in[0].at + (size_t)i * cell_bytes(c), s->n);
    return status;
}

static const float *cell(const kv_check_case *c, float *x, int32_t i) {
    c->shape.dtype->decode(x, c->in[0].at + (size_t)i * cell_bytes(c), c->shape.n);
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
                          .k_bytes = cell_bytes(c),
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
                               .v_bytes = cell_bytes(c),
                               .n_cells = c->shape.rows,
                               .dtype = c->shape.dtype};
    c->kernel->accumulate(&args);
}

static void verify_accumulate(kv_check_case *c) {
    const float *p = (const float *)c->in[1].at, *before = (const float *)c->in[2].at,
                *o = (const float *)c->out.at;
    static const double k = MAX_CELLS + 4;
    for (int32_t j = 0; j < c->shape.columns; j++) {
        double sum[MAX_HEAD_DIM], terms[MAX_HEAD_DIM];
        for (int64_t d = 0; d < c->shape.n; d++) {
            sum[d] = (double)before[j * c->shape.n + d];
            terms[d] = fabs(sum[d]);
        }
        for (int32_t i = 0; i < c->shape.rows; i++) {
            float x[MAX_HEAD_DIM];
            cell(c, x, i);
            for (int64_t d = 0; d < c->shape.n && p[j * STEP + i] != 0; d++) {
                double product = (double)p[j * STEP + i] * (double)x[d];
                sum[d] += product;
                terms[d] += fabs(product);
            }
        }
        for (int64_t d = 0; d < c->shape.n; d++)
            kv_check_close(c, j * c->shape.n + d, o[j * c->shape.n + d], sum[d], terms[d], k);
    }
}

const kv_check_role kv_check_accumulate = {.pick = pick,
                                           .setup = setup_accumulate,
                                           .run = run_accumulate,
                                           .verify = verify_accumulate,
                                           .cost = cost,
                                           .bench = SHAPES};
