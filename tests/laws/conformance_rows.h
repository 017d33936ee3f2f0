/* conformance_rows.h: cases of the ops that work row by row: embed, select, norm, glu, rope_table. */
#pragma once

#include "conformance.h"
#include "op/embed.h"
#include "op/glu.h"
#include "op/norm.h"
#include "op/rope_table.h"
#include "op/select.h"

static const int64_t conf_widths[] = {1, 5, 16, 31, 32, 64, 100, 128, 320};

/* A dtype that a result of `cols` columns may be coded in. */
static inline const kv_dtype *conf_coded(conf_case *c, int64_t cols) {
    static const kv_dtype *const any[] = {&kv_dtype_f32, &kv_dtype_f32, &kv_dtype_f16, &kv_dtype_bf16};
    static const kv_dtype *const blocks[] = {&kv_dtype_f32, &kv_dtype_a8, &kv_dtype_a8, &kv_dtype_q8_0,
                                             &kv_dtype_f16};
    return cols % 32 ? conf_choose(c, any) : conf_choose(c, blocks);
}

/* Floats, or now and then what no driver takes: the reference has to serve then. */
static inline const kv_dtype *conf_plain(conf_case *c) {
    return conf_chance(c, 0.1) ? &kv_dtype_f16 : KV_FLOAT;
}

/* ---- embed */

static inline void conf_make_embed(conf_case *c, int32_t i) {
    static const kv_dtype *const out[] = {&kv_dtype_f32, &kv_dtype_f16, &kv_dtype_bf16};
    const kv_dtype *d = conf_dtype(i);
    const kv_layout *l = conf_layout(i / kv_dtype_count());
    int64_t rows = conf_between(c, 1, 40), cols = d->block_elems * conf_between(c, 1, 3);
    c->in[0] = conf_normal(c, d, l, rows, cols, 1);
    c->rows = c->n_compared = conf_tokens(c);
    int32_t *tokens = conf_alloc(c, c->rows, sizeof *tokens);
    for (int64_t t = 0; t < c->rows; t++) tokens[t] = (int32_t)conf_between(c, 0, rows - 1);
    tokens[c->rows - 1] = (int32_t)rows - 1;
    kv_embed_params p = {.tokens = tokens, .scale = conf_chance(c, 0.5) ? 1 : 2.5f};
    c->params = conf_copy(c, &p, sizeof p);
    c->out = conf_choose(c, out);
    snprintf(c->text, sizeof c->text, "%s %s, %lld x %lld, %lld tokens, to %s", d->name, l->name,
             (long long)rows, (long long)cols, (long long)c->rows, c->out->name);
}

static inline kv_tensor *conf_build_embed(const conf_case *c, kv_graph *g) {
    return kv_embed(g, c->params, c->in[0], c->rows, c->out);
}

/* ---- select */

static inline void conf_make_select(conf_case *c, int32_t i) {
    static const kv_dtype *const plain[] = {&kv_dtype_f32, &kv_dtype_f16, &kv_dtype_bf16};
    c->out = plain[i % 3];
    int64_t rows = conf_tokens(c);
    c->in[0] = conf_normal(c, c->out, &kv_layout_rows, rows, conf_choose(c, conf_widths), 1);
    c->rows = c->n_compared = conf_between(c, 1, rows);
    int32_t *list = conf_alloc(c, c->rows, sizeof *list);
    for (int64_t r = 0; r < c->rows; r++) list[r] = (int32_t)conf_between(c, 0, rows - 1);
    c->params = conf_copy(c, &(kv_select_params){list}, sizeof(kv_select_params));
    snprintf(c->text, sizeof c->text, "%s, %lld of %lld rows", c->out->name, (long long)c->rows,
             (long long)rows);
}

static inline kv_tensor *conf_build_select(const conf_case *c, kv_graph *g) {
    return kv_select(g, c->params, c->in[0], c->rows);
}

/* ---- norm: a square root, a factor, two products and a sum, each rounded */

static inline void conf_make_norm(conf_case *c, int32_t i) {
    int64_t width = conf_widths[i % 9], cols = width * conf_between(c, 1, 4), rows = conf_tokens(c);
    c->in[0] = conf_normal(c, conf_plain(c), &kv_layout_rows, rows, cols, 1);
    c->in[1] = conf_floats(c, 1, width, 1);
    if (conf_chance(c, 0.4)) c->in[2] = conf_normal(c, conf_plain(c), &kv_layout_rows, rows, cols, 1);
    if (conf_chance(c, 0.2)) memset(kv_tensor_row(c->in[0], rows - 1), 0, 4);
    kv_norm_params p = {.eps = conf_chance(c, 0.5) ? 1e-5f : 1e-6f, .width = width};
    c->params = conf_copy(c, &p, sizeof p);
    c->out = conf_coded(c, cols);
    c->n_compared = rows;
    const float *x = conf_read(c, c->in[0]), *w = conf_read(c, c->in[1]);
    const float *residual = c->in[2] ? conf_read(c, c->in[2]) : NULL;
    c->bound = conf_alloc(c, rows * cols, sizeof *c->bound);
    for (int64_t k = 0; k < rows * cols; k += width) {
        double squares = 0;
        for (int64_t j = 0; j < width; j++) squares += (double)x[k + j] * (double)x[k + j];
        double scale = 1 / sqrt(squares / (double)width + (double)p.eps);
        for (int64_t j = 0; j < width; j++)
            c->bound[k + j] = 8 * 0x1p-24 *
                              (fabs((double)x[k + j] * scale * (double)w[j]) +
                               (residual ? fabs((double)residual[k + j]) : 0));
    }
    snprintf(c->text, sizeof c->text, "%s, %lld x %lld, width %lld%s, to %s", c->in[0]->dtype->name,
             (long long)rows, (long long)cols, (long long)width, residual ? ", residual" : "", c->out->name);
}

static inline kv_tensor *conf_build_norm(const conf_case *c, kv_graph *g) {
    return kv_norm(g, c->params, c->in[0], c->in[1], c->in[2], c->out);
}

/* ---- glu: both activations are at most |gate|, and off by a few roundings of it */

static inline double conf_glu_bound(double gate, double up) {
    return 16 * 0x1p-24 * fabs(gate * up) + 0x1p-120;
}

static inline void conf_make_glu(conf_case *c, int32_t i) {
    int64_t cols = conf_widths[i / 2 % 9], rows = conf_tokens(c);
    double size = conf_chance(c, 0.2) ? 40 : 1.5;
    c->in[0] = conf_normal(c, conf_plain(c), &kv_layout_rows, rows, cols, size);
    c->in[1] = conf_normal(c, conf_plain(c), &kv_layout_rows, rows, cols, 1);
    kv_glu_params p = {i % 2 ? KV_GLU_SILU : KV_GLU_GELU};
    c->params = conf_copy(c, &p, sizeof p);
    c->out = conf_coded(c, cols);
    c->n_compared = rows;
    const float *gate = conf_read(c, c->in[0]), *up = conf_read(c, c->in[1]);
    c->bound = conf_alloc(c, rows * cols, sizeof *c->bound);
    for (int64_t k = 0; k < rows * cols; k++) c->bound[k] = conf_glu_bound((double)gate[k], (double)up[k]);
    snprintf(c->text, sizeof c->text, "%s, %lld x %lld, to %s", i % 2 ? "silu" : "gelu", (long long)rows,
             (long long)cols, c->out->name);
}

static inline kv_tensor *conf_build_glu(const conf_case *c, kv_graph *g) {
    return kv_glu(g, c->params, c->in[0], c->in[1], c->out);
}

/* ---- rope_table */

/* A rotation of some of `dim` dimensions. */
static inline kv_rope *conf_rope(conf_case *c, int32_t dim) {
    int32_t even = dim / 2 * 2, n_rot = conf_chance(c, 0.6) ? even : (int32_t)conf_between(c, 0, dim / 2) * 2;
    double *freq = conf_alloc(c, n_rot / 2 + 1, sizeof *freq);
    kv_rope_spec spec = {.n_rot = n_rot, .base = 10000, .linear = 1};
    kv_rope_frequencies(freq, &spec);
    kv_rope rope = {.n_rot = n_rot,
                    .pairing = conf_chance(c, 0.5) ? KV_ROPE_HALVES : KV_ROPE_ADJACENT,
                    .magnitude = conf_chance(c, 0.7) ? 1 : 1.2f,
                    .freq = freq};
    return conf_copy(c, &rope, sizeof rope);
}

static inline kv_angles *conf_angles(conf_case *c, int32_t n_tokens, int32_t n_turns) {
    int64_t *stored = conf_alloc(c, n_tokens, sizeof *stored), *turns = conf_alloc(c, n_turns, sizeof *turns);
    for (int32_t t = 0; t < n_tokens; t++)
        stored[t] = conf_between(c, 0, conf_chance(c, 0.1) ? 1 << 30 : 9000);
    for (int32_t t = 0; t < n_turns; t++) turns[t] = conf_between(c, -5000, 5000);
    kv_angles a = {n_tokens, n_turns, stored, turns};
    return conf_copy(c, &a, sizeof a);
}

static inline void conf_make_rope_table(conf_case *c, int32_t i) {
    int32_t n_tokens = (int32_t)conf_tokens(c), n_turns = (int32_t)conf_between(c, 0, 5);
    kv_rope_table_params p = {.rope = conf_rope(c, 2 + 2 * i), .angles = conf_angles(c, n_tokens, n_turns)};
    while (!p.rope->n_rot) p.rope = conf_rope(c, 2 + 2 * i);
    c->params = conf_copy(c, &p, sizeof p);
    c->out = KV_FLOAT;
    c->n_compared = n_tokens + n_turns;
    c->rows = c->n_compared + conf_between(c, 0, 8);
    snprintf(c->text, sizeof c->text, "%d tokens, %d turns, n_rot %d", n_tokens, n_turns, p.rope->n_rot);
}

static inline kv_tensor *conf_build_rope_table(const conf_case *c, kv_graph *g) {
    return kv_rope_table(g, c->params, c->rows);
}
