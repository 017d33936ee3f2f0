/* group.h: layers that share a page table: which cells are in use, the spans of every sequence, and the views
 * that their ops read. Checks nothing: cache.c finds out first whether an operation is legal in all groups.
 */
#pragma once

#include "cache/cache.h"
#include "cache/cells.h"

typedef struct kv_group {
    int32_t window, margin, n_pin; /* window 0: keeps everything */
    bool roped;                    /* a layer's keys are */
    kv_cells cells;
    kv_spans *sequences;
    int32_t n_sequences;
    /* of the last append */
    kv_batch_view batch;
    kv_angles angles;
    int64_t *pos, *stored; /* n_batch */
    int32_t *cell_of;      /* n_batch */
    kv_seq_view *seqs;     /* n_sequences */
    KV_VEC(kv_run) runs;
    KV_VEC(int64_t) turns;
    /* of a rewrite: rewrite.c */
    kv_spans edited, draft;
    KV_VEC(int32_t) from, to, turned;
    KV_VEC(int64_t) deltas;
    kv_cell_moves moves;
    kv_cell_turns rotation;
} kv_group;

/* window, margin, n_pin and roped are set before. */
kv_status kv_group_init(kv_group *g, const kv_cache_spec *spec, int32_t n_cells);
void kv_group_clear(kv_group *g);

/* Needs room for four spans, unless the end is erased. */
void kv_group_edit(kv_group *g, int32_t seq, const kv_edit *e);
/* The same on spans alone; cells, if not NULL, are where those that are erased go. */
void kv_spans_edit(kv_spans *s, const kv_edit *e, kv_cells *cells);
/* Room was made for all spans of `from`. */
void kv_group_copy(kv_group *g, int32_t to, int32_t from);
/* The lowest position that a window and its margin reach back to from a token at `end`. */
static inline int64_t kv_group_held_from(const kv_group *g, int64_t end) {
    return end - g->window - g->margin + 1;
}
/* A window lets go of what lies behind it and its margin, from position `from` on. Needs room for two spans.
 */
void kv_group_release(kv_group *g, kv_spans *s, int64_t from);
/* A query at the end of a sequence of this extent would see positions that were released. */
bool kv_group_misses(const kv_group *g, const kv_extent *x);

/* Room for every span that the append may make and view, and for its rollback or commit. */
kv_status kv_group_reserve(kv_group *g, const kv_cache_part *parts, int32_t n_parts);
void kv_group_append(kv_group *g, const kv_cache_part *parts, int32_t n_parts);

/* kv_cache_adopt, once the sequence is known to exist: adopt.c. */
kv_status kv_groups_adopt(kv_group *groups, int32_t n_groups, int32_t seq, const kv_span_list *lists);

/* What a rewrite is to do: an edit, then one frame for all spans or (with a divisor) other positions in
 * a range. */
typedef struct kv_rewrite {
    kv_edit edit;
    int64_t frame;
    int64_t p0, p1, divisor;
} kv_rewrite;

/* Fills draft, moves and rotation; what was taken is given back by abort, also after a failure. */
kv_status kv_group_begin_rewrite(kv_group *g, int32_t seq, const kv_rewrite *r);
void kv_group_commit_rewrite(kv_group *g, int32_t seq);
void kv_group_abort_rewrite(kv_group *g);
