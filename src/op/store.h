/* store.h: how ops see a KV cache: the K and V of one layer as tensors with a row a cell, how a head is coded
 * in them, and what the cells mean for the tokens of one evaluation. The cache (cache/) owns and fills all of
 * it.
 *
 *     coded key   = encode(pad(H (R(p) (k - mean))))      R: rotary embedding with its magnitude, p: stored
 * position coded value = encode(pad(H v))                      H: Hadamard transform; mean: of the centre, if
 * there is one
 */
#pragma once

#include "core/tensor.h"
#include "op/centre.h"
#include "op/rope.h"

/* How one head's numbers lie in a row. */
typedef struct kv_head_code {
    int32_t dim;      /* numbers of a head */
    int32_t width;    /* of them as stored: whole blocks, zeros behind the last */
    int32_t rotation; /* the Hadamard transform's block (op/hadamard.h); 1: none */
} kv_head_code;

/* A head of `dim` numbers in blocks of `d`, with the transform or without. */
kv_head_code kv_head_code_of(const kv_dtype *d, int32_t dim, bool rotated);
/* Between n heads of dim numbers and what is coded of them, width numbers each. */
void kv_heads_store(float *stored, const float *heads, int32_t n, const kv_head_code *code);
void kv_heads_restore(float *heads, const float *stored, int32_t n, const kv_head_code *code);

/* K and V of one layer. A row is a cell: n_kv_heads * width numbers. */
typedef struct kv_store {
    kv_tensor k, v;
    int32_t n_kv_heads;
    kv_head_code k_head, v_head;
    const kv_centre *centre; /* NULL: keys are stored as they are */
} kv_store;

/* For references: a cell's keys (rotated to `stored`, centre added, n_kv_heads * dim) or values. */
kv_status kv_store_read_key(float *dst, const kv_store *s, int32_t cell, int64_t stored, const kv_rope *rope);
kv_status kv_store_read_value(float *dst, const kv_store *s, int32_t cell);
/* The other way: keys before rotation, and the row of a rope table to rotate them by (NULL: none). */
kv_status kv_store_write_key(const kv_store *s, int32_t cell, const float *src, const kv_rope *rope,
                             const float *table_row);
kv_status kv_store_write_value(const kv_store *s, int32_t cell, const float *src);

/* Cells [first_cell, first_cell + n_cells) hold the true positions pos, pos + 1, ... of a sequence. */
typedef struct kv_run {
    int32_t first_cell, n_cells;
    int64_t pos;
    int64_t stored; /* the position that the first cell's key was rotated by */
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
