/* conformance_cells.h: cases of cache_write and attend. Cells that no run names hold NaN bytes. */
#pragma once

#include "conformance.h"
#include "conformance_rows.h"
#include "op/attend.h"
#include "op/cache_write.h"

enum { CONF_MAX_SEQS = 3, CONF_MAX_RUNS = 32, CONF_WORK = 4000000 /* numbers that a reference may decode */ };

static const int32_t conf_head_dims[] = {64, 32, 80, 96, 128, 256, 5, 20, 33};
static const int32_t conf_groups[] = {1, 2, 3, 7, 8};

/* A head size that is whole blocks of `d`: `wish` if it is. */
static inline int32_t conf_head_dim(const kv_dtype *d, int32_t wish) {
    return (wish + d->block_elems - 1) / d->block_elems * d->block_elems;
}

static inline kv_store *conf_store(conf_case *c, const kv_dtype *k, const kv_dtype *v, const kv_layout *l,
                                   int32_t n_cells, int32_t n_kv_heads, int32_t dim) {
    kv_store *s = conf_alloc(c, 1, sizeof *s);
    *s = (kv_store){.n_kv_heads = n_kv_heads,
                    .k_head = kv_head_code_of(k, conf_head_dim(k, dim), false),
                    .v_head = kv_head_code_of(v, conf_head_dim(v, dim), false)};
    s->k = *conf_tensor(c, k, l, n_cells, (int64_t)n_kv_heads * s->k_head.width);
    s->v = *conf_tensor(c, v, l, n_cells, (int64_t)n_kv_heads * s->v_head.width);
    return s;
}

/* A table of angles for conf_angles; NULL without rotation. */
static inline kv_tensor *conf_table(conf_case *c, const kv_rope *rope, const kv_angles *a) {
    if (!rope->n_rot) return NULL;
    kv_tensor *t = conf_tensor(c, KV_FLOAT, &kv_layout_rows, a->n_tokens + a->n_turns, rope->n_rot);
    for (int32_t i = 0; i < a->n_tokens; i++)
        kv_rope_table_row(kv_tensor_row(t, i), rope, (double)a->stored[i], rope->magnitude);
    for (int32_t i = 0; i < a->n_turns; i++)
        kv_rope_table_row(kv_tensor_row(t, a->n_tokens + i), rope, (double)a->turns[i], 1);
    return t;
}

/* ---- cache_write */

/* Distinct cells in random order. */
static inline int32_t *conf_shuffled(conf_case *c, int32_t n) {
    int32_t *list = conf_alloc(c, n, sizeof *list);
    for (int32_t i = 0; i < n; i++) list[i] = i;
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t j = (int32_t)conf_between(c, 0, i), swap = list[i];
        list[i] = list[j];
        list[j] = swap;
    }
    return list;
}

static inline void conf_make_cache_write(conf_case *c, int32_t i) {
    const kv_dtype *k = conf_dtype(i), *v = conf_dtype(7 * i + 3);
    const kv_layout *l = conf_layout(i / kv_dtype_count());
    int32_t n = (int32_t)(k->block_elems * v->block_elems == 1 ? conf_tokens(c) : conf_between(c, 1, 9));
    int32_t n_cells = n + (int32_t)conf_between(c, 0, 40), dim = conf_head_dims[i % 9];
    kv_store *s = conf_store(c, k, v, l, n_cells, (int32_t)conf_between(c, 1, 3), dim);
    const kv_rope *rope = conf_rope(c, s->k_head.dim);
    kv_batch_view batch = {.n_tokens = n, .cells = conf_shuffled(c, n_cells)};
    kv_cache_write_params p = {rope, s, conf_copy(c, &batch, sizeof batch)};
    c->params = conf_copy(c, &p, sizeof p);
    c->in[0] = conf_normal(c, conf_plain(c), &kv_layout_rows, n, s->k.cols, 1);
    c->in[1] = conf_normal(c, conf_plain(c), &kv_layout_rows, n, s->v.cols, 1);
    c->in[2] = conf_table(c, rope, conf_angles(c, n, 0));
    c->written[0] = &s->k;
    c->written[1] = &s->v;
    snprintf(c->text, sizeof c->text, "%d tokens, %d cells, K %s V %s %s, %d heads of %d and %d, n_rot %d", n,
             n_cells, k->name, v->name, l->name, s->n_kv_heads, s->k_head.dim, s->v_head.dim, rope->n_rot);
}

static inline kv_tensor *conf_build_cache_write(const conf_case *c, kv_graph *g) {
    kv_cache_write(g, c->params, c->in[0], c->in[1], c->in[2]);
    return NULL;
}

/* ---- attend */

/* Runs of one sequence under construction. */
typedef struct conf_batch {
    kv_batch_view view;
    kv_seq_view seqs[CONF_MAX_SEQS];
    kv_run runs[CONF_MAX_SEQS * CONF_MAX_RUNS];
    int64_t *pos;
    int32_t n_runs, n_cells; /* cells up to here are given away */
} conf_batch;

/* `n` cells in up to CONF_MAX_RUNS runs with gaps between cells and between positions; the last n_tokens
 * positions are the tokens'. */
static inline void conf_add_sequence(conf_case *c, conf_batch *b, int32_t n, int32_t n_tokens, int32_t n_all,
                                     int32_t n_turns) {
    kv_seq_view *s = &b->seqs[b->view.n_seqs++];
    *s = (kv_seq_view){b->view.n_tokens, n_tokens, b->n_runs, 0, n};
    int64_t pos = conf_between(c, 0, 5);
    for (int32_t left = n; left > 0; s->n_runs++) {
        bool last = s->n_runs == CONF_MAX_RUNS - 1 || left <= n_tokens; /* tokens follow each other */
        int32_t most = left > n_tokens ? left - n_tokens : left;
        int32_t size = last ? left : (int32_t)conf_between(c, 1, most);
        int32_t turn = n_turns && conf_chance(c, 0.6) ? n_all + (int32_t)conf_between(c, 0, n_turns - 1) : -1;
        b->n_cells += (int32_t)conf_between(c, 0, 9);
        b->runs[b->n_runs++] = (kv_run){b->n_cells, size, pos, conf_between(c, 0, 1000), turn};
        b->n_cells += size;
        left -= size;
        pos += size + (left > n_tokens ? conf_between(c, 0, 30) : 0);
    }
    for (int32_t t = 0; t < n_tokens; t++) b->pos[b->view.n_tokens++] = pos - n_tokens + t;
}

static inline const kv_batch_view *conf_batch_view(conf_case *c, int32_t n_tokens, int32_t n_turns,
                                                   int64_t max_history, int32_t *n_cells) {
    conf_batch *b = conf_alloc(c, 1, sizeof *b);
    b->pos = conf_alloc(c, n_tokens, sizeof *b->pos);
    int32_t n_seqs = n_tokens < CONF_MAX_SEQS ? 1 : (int32_t)conf_between(c, 1, CONF_MAX_SEQS);
    for (int32_t i = 0; i < n_seqs; i++) {
        int32_t left = n_tokens - b->view.n_tokens, others = n_seqs - 1 - i;
        int32_t n = others ? (int32_t)conf_between(c, 1, left - others) : left;
        conf_add_sequence(c, b, n + (int32_t)conf_between(c, 0, max_history), n, n_tokens, n_turns);
    }
    b->view.pos = b->pos;
    b->view.seqs = b->seqs;
    b->view.runs = b->runs;
    *n_cells = b->n_cells + 3;
    return &b->view;
}

/* Random numbers into the cells that runs name; returns the largest magnitude. */
static inline double conf_fill_cells(conf_case *c, const kv_tensor *t, const kv_batch_view *b) {
    float *row = conf_alloc(c, t->cols, sizeof *row);
    double most = 0;
    for (int32_t s = 0; s < b->n_seqs; s++)
        for (int32_t r = b->seqs[s].first_run; r < b->seqs[s].first_run + b->seqs[s].n_runs; r++)
            for (int32_t i = 0; i < b->runs[r].n_cells; i++) {
                for (int64_t k = 0; k < t->cols; k++) row[k] = kv_random_normal(&c->random);
                conf_set_row(c, t, b->runs[r].first_cell + i, row);
                for (int64_t k = 0; k < t->cols; k++) most = fmax(most, fabs((double)row[k]));
            }
    return most;
}

/* A score is off by the roundings of a dot product whose terms sum to less than |q| |k|, and changes a
 * probability by that share, up to twice (its own and the sum's). Sizes of random vectors stand for the
 * largest: normal numbers, 1.5 times the expected length. */
static inline void conf_bound_attend(conf_case *c, const kv_attend_params *p, int32_t most_cells,
                                     double most_v) {
    double magnitude = (double)p->rope->magnitude, length = 2.25 * p->store->k_head.dim + 8;
    double score = (double)p->scale * magnitude * length;
    double score_off = score * conf_rounding(p->store->k_head.dim);
    double bound = most_v * (2 * score_off + conf_rounding(most_cells));
    int64_t n = c->in[0]->rows * p->n_heads * p->store->v_head.dim;
    c->bound = conf_alloc(c, n, sizeof *c->bound);
    for (int64_t i = 0; i < n; i++) c->bound[i] = bound;
}

static inline void conf_make_attend(conf_case *c, int32_t i) {
    static const kv_dtype *const kinds[] = {&kv_dtype_f16, &kv_dtype_f32, &kv_dtype_q8_0};
    bool odd = i % 10 == 9; /* now and then a dtype that no cache uses yet, or a layout without kernels */
    const kv_dtype *k = odd ? conf_dtype(i / 10) : kinds[i % 3], *v = odd ? k : kinds[i / 3 % 3];
    const kv_layout *l = conf_layout(odd && i % 20 == 9);
    int32_t n_kv = (int32_t)conf_between(c, 1, 3), group = i % 16 == 15 ? 40 : conf_choose(c, conf_groups);
    int32_t dim = conf_head_dims[i % 9], n = (int32_t)conf_tokens(c), n_cells;
    if (k->block_elems > 1) dim = conf_head_dim(k, dim);
    bool is_long = n <= 9 && conf_chance(c, 0.4); /* long enough to be split into parts */
    int64_t history = CONF_WORK / (n * (int64_t)(n_kv * group) * (n_kv * dim)), least = is_long ? 1300 : 100;
    if (history > least) history = least;
    int32_t n_turns = conf_chance(c, 0.5) ? (int32_t)conf_between(c, 1, 3) : 0;
    const kv_batch_view *batch = conf_batch_view(c, n, n_turns, history, &n_cells);
    kv_store *s = conf_store(c, k, v, l, n_cells, n_kv, dim);
    const kv_rope *rope = conf_rope(c, s->k_head.dim);
    kv_attend_params p = {.rope = rope,
                          .store = s,
                          .batch = batch,
                          .n_heads = n_kv * group,
                          .scale = (float)(1 / sqrt(s->k_head.dim)),
                          .softcap = conf_chance(c, 0.25) ? 3 : 0,
                          .window = conf_chance(c, 0.4) ? (int32_t)conf_between(c, 1, 40) : 0};
    c->params = conf_copy(c, &p, sizeof p);
    c->in[0] = conf_normal(c, conf_plain(c), &kv_layout_rows, n, (int64_t)p.n_heads * s->k_head.dim, 1);
    c->in[1] = conf_table(c, rope, conf_angles(c, n, n_turns));
    conf_fill_cells(c, &s->k, batch);
    double most_v = conf_fill_cells(c, &s->v, batch);
    c->out = conf_coded(c, (int64_t)p.n_heads * s->v_head.dim);
    c->n_compared = n;
    conf_bound_attend(c, &p, n_cells, most_v);
    snprintf(c->text, sizeof c->text,
             "%d tokens, %d sequences, %d cells, K %s V %s %s, %d of %d heads, %d and %d numbers, n_rot %d, "
             "window %d, cap %g, %d turns, to %s",
             n, batch->n_seqs, n_cells, k->name, v->name, l->name, n_kv, p.n_heads, s->k_head.dim,
             s->v_head.dim, rope->n_rot, p.window, (double)p.softcap, n_turns, c->out->name);
}

static inline kv_tensor *conf_build_attend(const conf_case *c, kv_graph *g) {
    return kv_attend(g, c->params, c->in[0], c->in[1], c->out);
}
