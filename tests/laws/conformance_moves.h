/* conformance_moves.h: cases of cache_move and cache_shift, in stores as conformance_cells.h makes them:
 * every dtype that a cache can have, in every layout, at every usual head size. Cells that are not named keep
 * their bytes; most of them hold NaN.
 */
#pragma once

#include "conformance_cells.h"
#include "op/cache_move.h"
#include "op/cache_shift.h"

/* Random numbers into some cells, as they would be written; the rest stays NaN bytes. */
static inline void conf_fill_some(conf_case *c, const kv_tensor *t, const int32_t *cells, int32_t n) {
    float *row = conf_alloc(c, t->cols, sizeof *row);
    for (int32_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < t->cols; k++) row[k] = kv_random_normal(&c->random);
        conf_set_row(c, t, cells[i], row);
    }
}

/* The node writes the store's K and V over what they hold now. */
static inline void conf_keep_initial(conf_case *c, const kv_store *s) {
    c->written[0] = &s->k;
    c->written[1] = &s->v;
    for (int i = 0; i < CASE_WRITTEN; i++)
        c->initial[i] = conf_copy(c, kv_tensor_data(c->written[i]), kv_tensor_bytes(c->written[i]));
}

static inline void conf_make_cache_move(conf_case *c, int32_t i) {
    conf_kept k, v;
    conf_keep(c, i, &k, &v);
    int32_t n = (int32_t)conf_between(c, 0, 20), n_cells = 2 * n + (int32_t)conf_between(c, 1, 40);
    int32_t *cells = conf_shuffled(c, n_cells);
    kv_store *s = conf_store(c, &k, &v, n_cells, conf_choose(c, conf_kv_heads));
    conf_fill_some(c, &s->k, cells, n);
    conf_fill_some(c, &s->v, cells, n);
    conf_keep_initial(c, s);
    kv_cell_moves moves = {n, cells, cells + n};
    kv_cache_move_params p = {s, conf_copy(c, &moves, sizeof moves)};
    c->params = conf_copy(c, &p, sizeof p);
    int at = snprintf(c->text, sizeof c->text, "%d of %d cells, ", n, n_cells);
    conf_describe_store(c->text + at, sizeof c->text - (size_t)at, s);
}

static inline kv_tensor *conf_build_cache_move(const conf_case *c, kv_graph *g) {
    kv_cache_move(g, c->params);
    return NULL;
}

static inline void conf_make_cache_shift(conf_case *c, int32_t i) {
    conf_kept k, v;
    conf_keep(c, i, &k, &v);
    int32_t n = (int32_t)conf_between(c, 0, 40), n_cells = n + (int32_t)conf_between(c, 1, 40);
    kv_store *s = conf_store(c, &k, &v, n_cells, conf_choose(c, conf_kv_heads));
    const kv_rope *rope = conf_rope(c, s->k_head.dim);
    while (!rope->n_rot) rope = conf_rope(c, s->k_head.dim);
    int32_t *cells = conf_shuffled(c, n_cells);
    int64_t *deltas = conf_alloc(c, n, sizeof *deltas), delta = 0;
    for (int32_t j = 0; j < n; j++) {
        if (conf_chance(c, 0.2)) delta = conf_between(c, -100000, 100000);
        deltas[j] = delta;
    }
    conf_fill_some(c, &s->k, cells, n);
    conf_keep_initial(c, s);
    kv_cell_turns turns = {n, cells, deltas};
    kv_cache_shift_params p = {rope, s, conf_copy(c, &turns, sizeof turns)};
    c->params = conf_copy(c, &p, sizeof p);
    int at = snprintf(c->text, sizeof c->text, "%d of %d cells, n_rot %d, ", n, n_cells, rope->n_rot);
    conf_describe_store(c->text + at, sizeof c->text - (size_t)at, s);
}

static inline kv_tensor *conf_build_cache_shift(const conf_case *c, kv_graph *g) {
    kv_cache_shift_keys(g, c->params);
    return NULL;
}
