/* conformance.h: what the generators of conformance cases share: memory, tensors, random choices, bounds.
 *
 * A case is one node: its inputs, its parameters, and how far each number of its result may be from the op's
 * scalar reference. A generator makes cases of one op and builds them through the op's own builder.
 */
#pragma once

#include "base/memory.h"
#include "base/random.h"
#include "op/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { CASE_BUFFERS = 16, CASE_WRITTEN = 2, CASE_OWNED = 4 };

typedef struct conf_case {
    kv_random random;
    kv_arena arena;
    kv_buffer buffers[CASE_BUFFERS];
    int32_t n_buffers;
    kv_tensor *in[KV_MAX_INPUTS];
    const kv_dtype *out;
    const void *params;                     /* of the op */
    int64_t rows;                           /* of the result, where the builder asks */
    int64_t n_compared;                     /* rows of the result that have a meaning */
    double *bound;                          /* of each number of the result before it is coded; NULL: exact */
    const kv_tensor *written[CASE_WRITTEN]; /* tensors that the node writes beside its result */
    const void *initial[CASE_WRITTEN];      /* what they hold before a run; NULL: 0xff */
    void *owned[CASE_OWNED];                /* freed with the case */
    int32_t n_owned;
    char text[400]; /* for messages */
} conf_case;

typedef struct conf_generator {
    const kv_op *op;
    int32_t n_cases;
    int32_t (*count)(void); /* over n_cases, where it depends on the registries */
    void (*make)(conf_case *c,
                 int32_t i); /* every case that must occur is in some i; the rest is at random */
    kv_tensor *(*build)(const conf_case *c, kv_graph *g);
} conf_generator;

/* ---- choices */

static inline int64_t conf_between(conf_case *c, int64_t low, int64_t high) {
    return low + (int64_t)(kv_random_u64(&c->random) % (uint64_t)(high - low + 1));
}

static inline bool conf_chance(conf_case *c, double chance) { return kv_random_unit(&c->random) < chance; }

#define conf_choose(c, list) ((list)[conf_between((c), 0, (int64_t)(sizeof(list) / sizeof *(list)) - 1)])

static inline const kv_dtype *conf_dtype(int32_t i) { return kv_dtype_at(i % kv_dtype_count()); }
static inline const kv_layout *conf_layout(int32_t i) { return kv_layout_at(i % kv_layout_count()); }

static inline int64_t conf_tokens(conf_case *c) {
    static const int64_t counts[] = {1, 2, 7, 8, 9, 33, 130};
    return conf_choose(c, counts);
}

/* ---- memory */

static inline void *conf_alloc(conf_case *c, int64_t n, size_t size) {
    void *p = kv_arena_alloc(&c->arena, (size_t)n, size);
    assert_non_null(p);
    return p;
}

static inline void *conf_copy(conf_case *c, const void *src, size_t bytes) {
    return memcpy(conf_alloc(c, 1, bytes), src, bytes);
}

/* A tensor with memory of its own, filled with 0xff: NaN in every float format. */
static inline kv_tensor *conf_tensor(conf_case *c, const kv_dtype *dtype, const kv_layout *layout,
                                     int64_t rows, int64_t cols) {
    assert_true(c->n_buffers < CASE_BUFFERS);
    kv_tensor *t = conf_alloc(c, 1, sizeof *t);
    *t = (kv_tensor){.dtype = dtype, .layout = layout, .rows = rows, .cols = cols};
    kv_buffer *b = &c->buffers[c->n_buffers++];
    *b = (kv_buffer){.bytes = kv_tensor_bytes(t), .host = kv_alloc_aligned(1, kv_tensor_bytes(t))};
    assert_non_null(b->host);
    memset(b->host, 0xff, b->bytes);
    t->buffer = b;
    return t;
}

static inline void conf_clear(conf_case *c) {
    for (int32_t i = 0; i < c->n_buffers; i++) kv_free(c->buffers[i].host);
    for (int32_t i = 0; i < c->n_owned; i++) kv_free(c->owned[i]);
    kv_arena_clear(&c->arena);
}

/* Codes `src` into a row of any layout. */
static inline void conf_set_row(conf_case *c, const kv_tensor *t, int64_t row, const float *src) {
    void *plain = conf_alloc(c, 1, kv_dtype_bytes(t->dtype, t->cols));
    t->dtype->encode(plain, src, t->cols);
    kv_layout_pack(t->layout, t->dtype, t->cols, kv_tensor_data(t), plain, row, 1);
}

/* Normal random numbers of a given size in all rows; padding is zero, as a layout has it. */
static inline kv_tensor *conf_normal(conf_case *c, const kv_dtype *dtype, const kv_layout *layout,
                                     int64_t rows, int64_t cols, double size) {
    kv_tensor *t = conf_tensor(c, dtype, layout, rows, cols);
    memset(kv_tensor_data(t), 0, kv_tensor_bytes(t));
    float *row = conf_alloc(c, cols, sizeof *row);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < cols; i++) row[i] = (float)size * kv_random_normal(&c->random);
        conf_set_row(c, t, r, row);
    }
    return t;
}

static inline kv_tensor *conf_floats(conf_case *c, int64_t rows, int64_t cols, double size) {
    return conf_normal(c, KV_FLOAT, &kv_layout_rows, rows, cols, size);
}

/* All numbers of a tensor. */
static inline float *conf_read(conf_case *c, const kv_tensor *t) {
    float *all = conf_alloc(c, t->rows * t->cols, sizeof *all);
    for (int64_t r = 0; r < t->rows; r++) assert_int_equal(kv_read_row(all + r * t->cols, t, r), KVANT_OK);
    return all;
}

/* ---- bounds */

/* Rounding of a sum of n products in f32, as a share of the sum of their magnitudes: 2 sqrt(n) instead of the
 * worst case n (N. Higham and T. Mary, A new approach to probabilistic rounding error analysis, 2019), and a
 * few roundings around it. */
static inline double conf_rounding(int64_t n) { return (16 + 2 * sqrt((double)n)) * 0x1p-24; }

/* The largest distance of neighbours that number i of a coded row may lie between: two numbers a hair apart
 * may be coded one step apart. */
static inline double conf_step(const kv_dtype *d, const float *row, int64_t i) {
    if (d == &kv_dtype_f16) return fabs((double)row[i]) * 0x1p-10 + 0x1p-24;
    if (d == &kv_dtype_bf16) return fabs((double)row[i]) * 0x1p-7;
    if (d != &kv_dtype_a8 && d != &kv_dtype_q8_0) return 0;
    const float *block = row + i / d->block_elems * d->block_elems;
    double most = 0;
    for (int32_t j = 0; j < d->block_elems; j++) most = fmax(most, fabs((double)block[j]));
    return most / 127 * 1.01 + fabs((double)row[i]) * 0x1p-10; /* a step, and a step of q8_0's f16 scale */
}
