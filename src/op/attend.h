/* attend.h: attention of a batch's queries to the cells of a store. */
#pragma once

#include "op/op.h"
#include "op/store.h"

typedef struct kv_attend_params {
    const kv_rope *rope;
    const kv_store *store;
    const kv_batch_view *batch; /* read when the node runs */
    int32_t n_heads;            /* a multiple of the store's n_kv_heads */
    float scale;                /* of the scores */
    float softcap;              /* score = softcap * tanh(score / softcap); 0 = off */
    int32_t window;             /* a query at m sees positions > m - window; 0 = all */
    const kv_dtype *act;        /* what queries and probabilities may be rounded to; NULL: they stay floats */
} kv_attend_params;

/* q: tokens x (n_heads * k_dim), not yet rotated; table: as for cache_write. Queries see the cells of their
 * sequence at positions up to their own. out: tokens x (n_heads * v_dim). */
kv_tensor *kv_attend(kv_graph *g, const kv_attend_params *p, kv_tensor *q, kv_tensor *table,
                     const kv_dtype *out);

/* The part of a run that a query at `pos` sees: *first (relative to the run) and the count returned, 0 if
 * none. */
static inline int32_t kv_run_visible(const kv_run *run, int64_t pos, int32_t window, int32_t *first) {
    int64_t last = pos - run->pos + 1 < run->n_cells ? pos - run->pos + 1 : run->n_cells, begin = 0;
    if (window && pos - window + 1 > run->pos) begin = pos - window + 1 - run->pos;
    *first = (int32_t)begin;
    return begin < last ? (int32_t)(last - begin) : 0;
}
