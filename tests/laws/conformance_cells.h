/* conformance_cells.h: cases of cache_write and attend: every dtype that a cache can have, in every layout,
 * at every usual head size, for K and for V, each with each other's; number of KV heads, transform, centre,
 * turns, windows and what queries may be rounded to at random. Cells that no run names hold NaN bytes.
 */
#pragma once

#include "conformance.h"
#include "conformance_rows.h"
#include "op/attend.h"
#include "op/cache_write.h"
#include "op/hadamard.h"

enum {
    CONF_MAX_SEQS = 3,
    CONF_MAX_RUNS = 32,
    CONF_WORK = 120000, /* numbers that a reference may decode */
    CONF_DIMS = 6,
    CONF_ODD_CASES = 60 /* beside the regular ones */
};

static const int32_t conf_head_dims[CONF_DIMS] = {32, 64, 80, 96, 128, 256};
static const int32_t conf_odd_dims[] = {2, 5, 20, 33, 48, 72, 112, 160, 192, 320};
static const int32_t conf_kv_heads[] = {1, 2, 3, 8};
static const int32_t conf_groups[] = {1, 1, 2, 3, 7, 8};

/* ---- what is combined */

static inline int32_t conf_n_cached(void) {
    int32_t n = 0;
    for (int32_t i = 0; i < kv_dtype_count(); i++) n += kv_dtype_at(i)->caches;
    return n;
}

static inline const kv_dtype *conf_cached(int32_t i) {
    int32_t k = 0;
    for (i %= conf_n_cached(); !kv_dtype_at(k)->caches || i-- > 0; k++) {
    }
    return kv_dtype_at(k);
}

/* How K or V of a case is kept. */
typedef struct conf_kept {
    const kv_dtype *dtype;
    const kv_layout *layout;
    int32_t dim;
    bool rotated;
} conf_kept;

static inline int32_t conf_cell_cases(void) {
    return conf_n_cached() * kv_layout_count() * CONF_DIMS + CONF_ODD_CASES;
}

/* Case i of the regular ones is dtype d, layout l and head size h for K, where i = d + n (l + m h). V has
 * dtype d + l + m h, layout l + h, size h, each modulo its number: i to V is one to one, so V meets every
 * combination too, every dtype of K meets every dtype of V, and every layout every layout (up to six of
 * them). The odd cases have odd sizes. */
static inline void conf_keep(conf_case *c, int32_t i, conf_kept *k, conf_kept *v) {
    int32_t n = conf_n_cached(), m = kv_layout_count(), block = i / n, l = block % m, h = block / m;
    *k = (conf_kept){conf_cached(i), kv_layout_at(l), 0, conf_chance(c, 0.5)};
    *v = (conf_kept){conf_cached(i + block), kv_layout_at((l + h) % m), 0, conf_chance(c, 0.5)};
    k->dim = v->dim = h < CONF_DIMS ? conf_head_dims[h] : conf_choose(c, conf_odd_dims);
    if (conf_chance(c, 0.2)) v->dim = conf_choose(c, conf_head_dims);
}

/* Some of the head's pairs, ascending, with large means. */
static inline const kv_centre *conf_centre(conf_case *c, const kv_rope *rope, int32_t n_heads) {
    int32_t most = rope->n_rot / 2, n = (int32_t)conf_between(c, 1, most);
    int32_t *pairs = conf_alloc(c, n_heads * n, sizeof *pairs);
    float *mean = conf_alloc(c, n_heads * n * 2, sizeof *mean);
    float *table = kv_alloc_aligned(kv_centre_table_floats(n_heads, n), sizeof *table);
    assert_non_null(table);
    c->owned[c->n_owned++] = table;
    for (int32_t h = 0; h < n_heads; h++)
        for (int32_t p = 0, at = 0; p < most && at < n; p++)
            if (conf_between(c, 0, most - p - 1) < n - at) pairs[h * n + at++] = p;
    for (int32_t j = 0; j < n_heads * n * 2; j++) mean[j] = 3 * kv_random_normal(&c->random);
    kv_centre centre = {.n_pairs = n, .pairs = pairs, .mean = mean, .table = table};
    kv_centre_fill_table(table, &centre, n_heads, rope);
    return conf_copy(c, &centre, sizeof centre);
}

static inline kv_store *conf_store(conf_case *c, const conf_kept *k, const conf_kept *v, int32_t n_cells,
                                   int32_t n_kv_heads) {
    kv_store *s = conf_alloc(c, 1, sizeof *s);
    *s = (kv_store){.n_kv_heads = n_kv_heads,
                    .k_head = kv_head_code_of(k->dtype, k->dim, k->rotated),
                    .v_head = kv_head_code_of(v->dtype, v->dim, v->rotated)};
    s->k = *conf_tensor(c, k->dtype, k->layout, n_cells, (int64_t)n_kv_heads * s->k_head.width);
    s->v = *conf_tensor(c, v->dtype, v->layout, n_cells, (int64_t)n_kv_heads * s->v_head.width);
    return s;
}

/* "K q8_0 rows 64, rotated, V ..., 2 heads, centre of 3 pairs" */
static inline int conf_describe_store(char *text, size_t size, const kv_store *s) {
    return snprintf(text, size, "K %s %s %d%s, V %s %s %d%s, %d heads, centre of %d pairs", s->k.dtype->name,
                    s->k.layout->name, s->k_head.dim, s->k_head.rotation > 1 ? " rotated" : "",
                    s->v.dtype->name, s->v.layout->name, s->v_head.dim,
                    s->v_head.rotation > 1 ? " rotated" : "", s->n_kv_heads,
                    s->centre ? s->centre->n_pairs : 0);
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
    conf_kept k, v;
    conf_keep(c, i, &k, &v);
    int32_t n = (int32_t)conf_between(c, 1, i % 8 ? 5 : 33), n_cells = n + (int32_t)conf_between(c, 0, 70);
    kv_store *s = conf_store(c, &k, &v, n_cells, conf_choose(c, conf_kv_heads));
    const kv_rope *rope = conf_rope(c, s->k_head.dim);
    if (rope->n_rot && conf_chance(c, 0.4)) s->centre = conf_centre(c, rope, s->n_kv_heads);
    kv_batch_view batch = {.n_tokens = n, .cells = conf_shuffled(c, n_cells)};
    kv_cache_write_params p = {rope, s, conf_copy(c, &batch, sizeof batch)};
    c->params = conf_copy(c, &p, sizeof p);
    c->in[0] = conf_normal(c, conf_plain(c), &kv_layout_rows, n, s->n_kv_heads * s->k_head.dim, 1);
    c->in[1] = conf_normal(c, conf_plain(c), &kv_layout_rows, n, s->n_kv_heads * s->v_head.dim, 1);
    c->in[2] = conf_table(c, rope, conf_angles(c, n, 0));
    c->written[0] = &s->k;
    c->written[1] = &s->v;
    int at = snprintf(c->text, sizeof c->text, "%d tokens, %d cells, n_rot %d, ", n, n_cells, rope->n_rot);
    conf_describe_store(c->text + at, sizeof c->text - (size_t)at, s);
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

/* Random numbers into the cells that runs name. */
static inline void conf_fill_cells(conf_case *c, const kv_tensor *t, const kv_batch_view *b) {
    float *row = conf_alloc(c, t->cols, sizeof *row);
    for (int32_t s = 0; s < b->n_seqs; s++)
        for (int32_t r = b->seqs[s].first_run; r < b->seqs[s].first_run + b->seqs[s].n_runs; r++)
            for (int32_t i = 0; i < b->runs[r].n_cells; i++) {
                for (int64_t k = 0; k < t->cols; k++) row[k] = kv_random_normal(&c->random);
                conf_set_row(c, t, b->runs[r].first_cell + i, row);
            }
}

#include "conformance_attend_bound.h"

/* Query heads for each KV head, and cells before the tokens, such that the reference is done soon. */
static inline int64_t conf_history(conf_case *c, int32_t n, int32_t n_heads, int32_t row, bool is_long) {
    int64_t work = is_long ? 8 * CONF_WORK : CONF_WORK, least = is_long ? 2300 : 150;
    int64_t history = work / ((int64_t)n * n_heads * row);
    (void)c;
    return history < least ? history : least;
}

static inline void conf_make_attend(conf_case *c, int32_t i) {
    conf_kept k, v;
    conf_keep(c, i, &k, &v);
    bool is_long = i % 16 == 7; /* long enough to be split into parts */
    int32_t n_kv = is_long ? 1 : conf_choose(c, conf_kv_heads);
    int32_t group = is_long ? 1 : i % 32 == 31 ? 40 : conf_choose(c, conf_groups);
    if (n_kv * k.dim > 500 && group < 40) group = 1;
    int32_t n = is_long ? 2 : n_kv * group > 8 ? 1 : (int32_t)conf_tokens(c), n_cells;
    if (n > 9 && i % 4) n = 9; /* the reference is slow by design */
    int64_t history = conf_history(c, n, n_kv * group, n_kv * (k.dim + v.dim), is_long);
    int32_t n_turns = conf_chance(c, 0.5) ? (int32_t)conf_between(c, 1, 3) : 0;
    const kv_batch_view *batch = conf_batch_view(c, n, n_turns, history, &n_cells);
    kv_store *s = conf_store(c, &k, &v, n_cells, n_kv);
    const kv_rope *rope = conf_rope(c, s->k_head.dim);
    if (rope->n_rot && conf_chance(c, 0.4)) s->centre = conf_centre(c, rope, n_kv);
    kv_attend_params p = {.rope = rope,
                          .store = s,
                          .batch = batch,
                          .n_heads = n_kv * group,
                          .scale = (float)(1 / sqrt(s->k_head.dim)),
                          .softcap = conf_chance(c, 0.25) ? 3 : 0,
                          .window = conf_chance(c, 0.4) ? (int32_t)conf_between(c, 1, 40) : 0,
                          .act = conf_chance(c, 0.5) ? &kv_dtype_a8 : NULL};
    c->params = conf_copy(c, &p, sizeof p);
    c->in[0] = conf_normal(c, conf_plain(c), &kv_layout_rows, n, (int64_t)p.n_heads * s->k_head.dim, 1);
    c->in[1] = conf_table(c, rope, conf_angles(c, n, n_turns));
    conf_fill_cells(c, &s->k, batch);
    conf_fill_cells(c, &s->v, batch);
    c->out = conf_coded(c, (int64_t)p.n_heads * s->v_head.dim);
    c->n_compared = n;
    conf_bound_attend(c, &p);
    int at =
        snprintf(c->text, sizeof c->text,
                 "%d tokens, %d sequences, %d cells, %d query heads, n_rot %d, magnitude %g, window %d, cap "
                 "%g, %d turns, act %s, to %s, ",
                 n, batch->n_seqs, n_cells, p.n_heads, rope->n_rot, (double)rope->magnitude, p.window,
                 (double)p.softcap, n_turns, p.act ? p.act->name : "f32", c->out->name);
    conf_describe_store(c->text + at, sizeof c->text - (size_t)at, s);
}

static inline kv_tensor *conf_build_attend(const conf_case *c, kv_graph *g) {
    return kv_attend(g, c->params, c->in[0], c->in[1], c->out);
}
