/* test_matmul.c: what the matmul and panel kernels promise beyond test_kernels: a column's result is the same
 * bits however many columns a call has, and quants as large as they get do not overflow. Every kernel that
 * this processor can run, against sums in double of the decoded weights times the decoded activations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"
#include "device/cpu/kernel.h"

#include <math.h>
#include <string.h>

enum { SEED = 20, MAX_X = 17 };

/* Where a block of the dtype has its f16 scales: random bytes there would be no sensible number. */
static const struct {
    const char *dtype;
    int n;
    int32_t at[2];
} half_fields[] = {
    {"q4_0", 1, {0}},      {"q4_1", 2, {0, 2}}, {"q5_0", 1, {0}},    {"q5_1", 2, {0, 2}}, {"q8_0", 1, {0}},
    {"q2_k", 2, {80, 82}}, {"q3_k", 1, {108}},  {"q4_k", 2, {0, 2}}, {"q5_k", 2, {0, 2}}, {"q6_k", 1, {208}},
    {"iq4_nl", 1, {0}},    {"iq4_xs", 1, {0}},  {"n3", 1, {0}},      {"n4", 1, {0}},      {"n6", 1, {0}},
};

typedef enum fill { RANDOM, LOWEST, HIGHEST, N_FILLS } fill; /* all quants alike: sums as large as they get */

/* Plain rows of weights: any bytes for quants, scales between 0.001 and 0.1. */
static void make_coded(uint8_t *dst, const kv_dtype *d, size_t bytes, fill how, kv_random *random) {
    uint8_t lowest = d == &kv_dtype_q8_0 ? 0x80 : 0, constant = how == LOWEST ? lowest : (uint8_t)~lowest;
    for (size_t i = 0; i < bytes; i++)
        dst[i] = how == RANDOM ? (uint8_t)(kv_random_u64(random) >> 32) : constant;
    for (size_t t = 0; t < sizeof half_fields / sizeof *half_fields; t++) {
        if (strcmp(half_fields[t].dtype, d->name)) continue;
        for (size_t b = 0; b < bytes; b += (size_t)d->block_bytes)
            for (int f = 0; f < half_fields[t].n; f++) {
                float scale = 0.001f + 0.099f * (float)kv_random_unit(random);
                uint16_t h = kv_f16_from_f32(kv_random_u64(random) & 1 ? scale : -scale);
                memcpy(dst + b + half_fields[t].at[f], &h, sizeof h);
            }
        return;
    }
    fail_msg("no half_fields for %s", d->name);
}

static void make_weights(uint8_t *dst, const kv_dtype *d, int64_t n, fill how, kv_random *random) {
    if (d->block_elems > 1) {
        make_coded(dst, d, kv_dtype_bytes(d, n), how, random);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float x = how == LOWEST ? 0 : kv_random_normal(random);
        d->encode(dst + kv_dtype_bytes(d, i), &x, 1);
    }
}

/* One row of activations: mostly normal numbers, some rows flat, empty or with one giant. */
static void make_x(uint8_t *dst, float *plain, const kv_dtype *d, int64_t n, int row, kv_random *random) {
    for (int64_t i = 0; i < n; i++) {
        plain[i] = row % 5 == 1 ? -1.0f : row % 5 == 2 ? 0.0f : kv_random_normal(random);
        if (row % 5 == 3 && i % 96 == 7) plain[i] = 1e6f;
    }
    d->encode(dst, plain, n);
    d->decode(plain, dst, n);
}

typedef struct problem {
    const kv_dtype *weights, *act;
    const kv_layout *layout; /* NULL: a panel */
    int64_t cols;
    int32_t n_tiles;
    uint8_t *w, *x;
    size_t x_bytes;
    double *want, *bound; /* MAX_X x rows */
} problem;

static int32_t n_rows(const problem *p) { return p->n_tiles * KV_TILE_ROWS; }

/* Within a block of 32 rounding is relative to the largest weight: an offset or a minimum may cancel the
 * others. */
static void expect(problem *p, int32_t row, int32_t j, const float *w, const float *x) {
    double sum = 0, terms = 0;
    int64_t step = p->weights->block_elems > 1 ? 32 : 1;
    for (int64_t c = 0; c < p->cols; c += step) {
        double max = 0, xs = 0;
        for (int64_t i = c; i < c + step; i++) {
            sum += (double)w[i] * (double)x[i];
            max = fmax(max, fabs((double)w[i]));
            xs += fabs((double)x[i]);
        }
        terms += max * xs;
    }
    p->want[j * n_rows(p) + row] = sum;
    p->bound[j * n_rows(p) + row] = (double)(8 + p->cols / step) * 0x1p-24 * terms;
}

static void problem_init(problem *p, fill how, kv_random *random) {
    int32_t rows = n_rows(p);
    size_t row_bytes = kv_dtype_bytes(p->weights, p->cols);
    uint8_t *plain = kv_alloc((size_t)rows, row_bytes);
    float *w = kv_alloc((size_t)rows * (size_t)p->cols, sizeof *w), *x = kv_alloc((size_t)p->cols, sizeof *x);
    p->want = kv_alloc((size_t)rows * MAX_X, sizeof *p->want);
    p->bound = kv_alloc((size_t)rows * MAX_X, sizeof *p->bound);
    make_weights(plain, p->weights, rows * p->cols, how, random);
    p->weights->decode(w, plain, rows * p->cols);
    p->w = kv_alloc_aligned((size_t)rows, row_bytes);
    kv_layout_pack(p->layout ? p->layout : &kv_layout_tile16x4, p->weights, p->cols, p->w, plain, 0, rows);
    p->x_bytes = kv_dtype_bytes(p->act, p->cols) + 4;
    p->x = kv_alloc(MAX_X, p->x_bytes);
    for (int32_t j = 0; j < MAX_X; j++) {
        make_x(p->x + (size_t)j * p->x_bytes, x, p->act, p->cols, j, random);
        for (int32_t r = 0; r < rows; r++) expect(p, r, j, w + (size_t)r * (size_t)p->cols, x);
    }
    kv_free(x);
    kv_free(w);
    kv_free(plain);
}

static void problem_clear(problem *p) {
    kv_free(p->w);
    kv_free(p->x);
    kv_free(p->want);
    kv_free(p->bound);
}

static void call(const kv_kernel *k, const problem *p, int32_t n_x, const void *x, float *y, size_t y_step) {
    if (k->role == KV_ROLE_matmul)
        k->matmul(&(kv_matmul_args){.w = p->w,
                                    .tile_bytes = kv_layout_tile_bytes(k->layout, k->a, p->cols),
                                    .n_tiles = p->n_tiles,
                                    .cols = p->cols,
                                    .x = x,
                                    .x_bytes = p->x_bytes,
                                    .n_x = n_x,
                                    .y = y,
                                    .y_step = y_step});
    else
        k->panel(&(kv_panel_args){.w = (const float *)p->w,
                                  .cols = p->cols,
                                  .x = x,
                                  .x_step = p->x_bytes / sizeof(float),
                                  .n_x = n_x,
                                  .y = y,
                                  .y_step = y_step});
}

static void check_row(const kv_kernel *k, const problem *p, int32_t j, const float *y, const char *what) {
    for (int32_t r = 0; r < n_rows(p); r++) {
        int32_t i = j * n_rows(p) + r;
        double off = fabs((double)y[r] - p->want[i]);
        if (!(off <= p->bound[i]))
            fail_msg("%s, seed %d, %s, %d tiles, %d columns: y[%d][%d] = %g, want %g, bound %g", k->name,
                     SEED, what, p->n_tiles, (int)p->cols, j, r, (double)y[r], p->want[i], p->bound[i]);
    }
}

/* Each column alone, then in company. A panel adds to what is there. */
static void check_kernel(const kv_kernel *k, const problem *p, const char *what) {
    size_t rows = (size_t)n_rows(p), y_step = rows + 3;
    float *y = kv_alloc(y_step * MAX_X, sizeof *y), *alone = kv_alloc(y_step * MAX_X, sizeof *alone);
    for (int32_t j = 0; j < MAX_X; j++) {
        call(k, p, 1, p->x + (size_t)j * p->x_bytes, alone + (size_t)j * y_step, y_step);
        check_row(k, p, j, alone + (size_t)j * y_step, what);
    }
    for (int32_t n_x = 2; n_x <= MAX_X; n_x++) {
        memset(y, 0, y_step * MAX_X * sizeof *y);
        call(k, p, n_x, p->x, y, y_step);
        if (memcmp(y, alone, (size_t)n_x * y_step * sizeof *y))
            fail_msg("%s, %s: %d columns together are not what each is alone", k->name, what, n_x);
    }
    kv_free(alone);
    kv_free(y);
}

/* Every kernel of one pair of dtypes and layout on the same numbers. */
static void check_problem(const kv_kernel *first, problem p, fill how, kv_random *random, unsigned cpu) {
    static const char *const names[N_FILLS] = {"random", "lowest", "highest"};
    problem_init(&p, how, random);
    for (int32_t i = 0; i < kv_kernel_count(); i++) {
        const kv_kernel *k = kv_kernel_at(i);
        if (k->role == first->role && k->a == first->a && k->b == first->b && (k->cpu & cpu) == k->cpu)
            check_kernel(k, &p, names[how]);
    }
    problem_clear(&p);
}

static bool is_first_of_pair(int32_t i) {
    const kv_kernel *k = kv_kernel_at(i);
    for (int32_t e = 0; e < i; e++) {
        const kv_kernel *other = kv_kernel_at(e);
        if (other->role == k->role && other->a == k->a && other->b == k->b) return false;
    }
    return true;
}

static void check_role(kv_role role) {
    unsigned cpu = kv_cpu_detect();
    static const int32_t blocks[] = {1, 2, 3, 9, 40};
    kv_random random;
    kv_random_init(&random, SEED);
    int checked = 0;
    for (int32_t i = 0; i < kv_kernel_count(); i++) {
        const kv_kernel *k = kv_kernel_at(i);
        if (k->role != role || !is_first_of_pair(i)) continue;
        problem p = {.weights = role == KV_ROLE_panel ? &kv_dtype_f32 : k->a,
                     .act = role == KV_ROLE_panel ? &kv_dtype_f32 : k->b,
                     .layout = k->layout};
        int32_t unit =
            p.weights->block_elems > p.act->block_elems ? p.weights->block_elems : p.act->block_elems;
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
            for (fill how = RANDOM; how < N_FILLS; how++) {
                p.cols = blocks[b] * unit;
                p.n_tiles = role == KV_ROLE_panel ? 1 : 1 + (int32_t)b % 3;
                check_problem(k, p, how, &random, cpu);
            }
        checked++;
    }
    print_message("%s: kernels for %d kinds of weights\n", kv_role_name(role), checked);
    if (!checked) skip();
}

static void test_matmul(void **state) {
    (void)state;
    check_role(KV_ROLE_matmul);
}

static void test_panel(void **state) {
    (void)state;
    check_role(KV_ROLE_panel);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matmul), cmocka_unit_test(test_panel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
