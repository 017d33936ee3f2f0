/* cpu_attend.h: what the driver of attend (cpu_attend.c: items, parts, merging) and the walk over cells
 * (cpu_attend_block.c) share. */
#pragma once

#include "device/cpu/cpu_op.h"
#include "op/attend.h"

enum {
    KV_BLOCK_CELLS = KV_CENTRE_CELLS,    /* cells of a page, read at a time */
    KV_SCORE_STEP = KV_BLOCK_CELLS + 16, /* floats of a row of scores: kernels may write 16 at a time */
    KV_HEAD_ROWS = 32,                   /* query rows that meet one KV head in an item, at most */
};

/* How keys and values are read: resolved once for a node. Keys in tiles of 16 meet coded queries as weights
 * meet activations; a `score` kernel reads keys of its own dtype and layout; keys that no kernel reads are
 * decoded to rows of floats, a head of a block at a time. Values likewise. */
typedef struct kv_attend_kernels {
    kv_matmul_fn *tiles; /* or NULL: then `score` */
    kv_score_fn *score;
    kv_accumulate_fn *accumulate;
    kv_decode_fn *decode_k, *decode_v; /* NULL where the kernels read the store */
    const kv_dtype *query;             /* what queries are coded as for `tiles` */
    kv_encode_fn *encode_query;
    kv_exp_sum_fn *exp_sum;
    kv_panel_fn *panel;
} kv_attend_kernels;

/* Query rows that meet one KV head: row i = token (i / n_heads), head (i % n_heads) of an item. Pointers into
 * a thread's workspace. */
typedef struct kv_attend_rows {
    int32_t kv_head, first_head, n_heads;
    int32_t first_token, n_tokens;
    float *rotated; /* rows x dim: rotated by position, scaled unless a soft cap comes between */
    float *turned;  /* rows x dim: in the frame of the run */
    float *shaped;  /* rows x width: transformed and padded as keys are stored */
    void *coded;    /* rows of the dtype `query` */
    float *s;       /* rows x KV_SCORE_STEP: scores, then probabilities; [i] is the page's cell i */
    float *o;       /* rows x width of V: sums relative to max */
    float *max, *weight;
    double *origin; /* pairs of the centre x {cos, sin of the page's origin, cos, sin of a page} */
    float *centre;  /* rows x 2 pairs: queries turned back by the page's origin */
} kv_attend_rows;

/* Scratch of a thread beside its rows: a head of a block as floats, and a coded head. */
typedef struct kv_attend_scratch {
    float *decoded;
    void *plain;
} kv_attend_scratch;

void kv_attend_resolve(kv_attend_kernels *k, const kv_attend_params *p, unsigned cpu);
/* What runs, for dumps: at most `capacity` bytes with the NUL. */
void kv_attend_describe(char *text, size_t capacity, const kv_attend_params *p, unsigned cpu);

/* The workspace of `n_heads` KV heads of `n_rows` query rows each: bytes, and where each of them lies. */
size_t kv_attend_work_bytes(const kv_attend_params *p, const kv_attend_kernels *k, int32_t n_heads,
                            int32_t n_rows);
void kv_attend_bind(kv_attend_rows *rows, kv_attend_scratch *scratch, void *work, const kv_attend_params *p,
                    const kv_attend_kernels *k, int32_t n_heads, int32_t n_rows);

/* Rotated queries of all rows, sums at nothing. */
void kv_attend_load(const kv_node *n, const kv_attend_rows *rows);
/* Queries in the frame of a run whose part from cell `begin` on comes next. */
void kv_attend_turn(const kv_node *n, const kv_attend_kernels *k, const kv_attend_rows *rows,
                    const kv_run *run, int64_t begin);
/* Asks memory for some heads of a page from its first cell on, ahead of their blocks. */
void kv_attend_fetch(const kv_attend_params *p, int64_t page, int32_t first_head, int32_t n_heads);
/* Cells [begin, end) of a run, all in one page. Pages of a run come in order. */
void kv_attend_block(const kv_node *n, const kv_attend_kernels *k, const kv_attend_rows *rows,
                     const kv_attend_scratch *scratch, const kv_run *run, int64_t begin, int64_t end);
