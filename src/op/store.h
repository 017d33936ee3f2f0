/* store.h: how ops see a KV cache: the K and V of one layer as tensors with a row a cell, and what the cells
 * mean for the tokens of one evaluation. The cache (cache/) owns and fills all of it. */
#pragma once

#include "core/tensor.h"
#include "op/rope.h"

/* K and V of one layer. A row is a cell: n_kv_heads * head_dim numbers. */
typedef struct kv_store {
    kv_tensor k, v;
    int32_t n_kv_heads, k_dim, v_dim; /* numbers per head */
} kv_store;

/* Cells [first_cell, first_cell + n_cells) hold the true positions pos, pos + 1, ... of a sequence. */
typedef struct kv_run {
    int32_t first_cell, n_cells;
    int64_t pos;
    int32_t
        turn; /* row of the rope table that turns a query into this run's frame; -1: it is there already */
} kv_run;

/* The tokens [first_token, first_token + n_tokens) of one sequence, and the runs they attend to (their own
 * cells included), in order of position. */
typedef struct kv_seq_view {
    int32_t first_token, n_tokens, first_run, n_runs;
    int64_t n_cells; /* sum over the runs */
} kv_seq_view;

/* One group of layers (they share cells) in one evaluation. Its address is part of a plan, its contents
 * change. */
typedef struct kv_batch_view {
    int32_t n_tokens, n_seqs;
    const int64_t *pos;   /* true position of each token */
    const int32_t *cells; /* the cell that each token's K and V go to */
    const kv_seq_view *seqs;
    const kv_run *runs;
} kv_batch_view;

/* The angles of one evaluation: rows [0, n_tokens) of a rope table rotate by the stored position of each
 * token, with the model's magnitude; the rows behind turn by turns[i], with magnitude 1. */
typedef struct kv_angles {
    int32_t n_tokens, n_turns;
    const int64_t *stored; /* n_tokens */
    const int64_t *turns;  /* n_turns */
} kv_angles;
