/* cache.h: the KV cache of a session: cells in stores (one per layer), and sequences as lists of spans over
 * them.
 *
 * A cell holds K and V of one token in every layer of a group; its K is rotated by its *stored* position. A
 * span is a run of cells of a sequence with consecutive positions:
 *
 *     span  {first_cell, n_cells, stored, turn}      true position of its cell i = stored + turn + i
 *
 * Moving tokens (shift) changes `turn` and nothing else; queries are turned the opposite way when they meet
 * the span (op/attend.h). New tokens are written in the frame of the span they extend, so shifts never add
 * frames of their own. Cells are counted: a copy of a sequence shares them, any free cell serves any
 * sequence, none is ever moved. Cells come from pages (64 in a row) so that a sequence's cells lie together.
 *
 * Layers that see all positions form group 0, and layers that see a window of the same size a group of their
 * own, with its own cells and spans. It keeps the window, a margin to go back by, and the first n_pin
 * positions; what lies behind is released when an append is committed: the spans stay, their cells go. Its
 * size does not depend on the context's. An operation acts on all groups, or on none.
 *
 *     group 0   |########################################|        # cells
 *     window    |#.......................################|        . released spans
 *                pin                      margin + window
 */
#pragma once

#include "cache/spans.h"
#include "op/cache_move.h"
#include "op/cache_shift.h"

enum { KV_PAGE_CELLS = 64 };

typedef struct kv_cache_layer {
    kv_device *device;
    const kv_dtype *k_dtype, *v_dtype;
    const kv_layout *k_layout, *v_layout;
    int32_t n_kv_heads, k_dim, v_dim;
    bool k_rotated, v_rotated; /* by the Hadamard transform before they are coded */
    const kv_centre *centre;   /* borrowed; NULL: none */
    int32_t window;            /* positions a query sees; 0: all */
    bool roped;                /* keys are rotated by their position */
} kv_cache_layer;

/* Bytes that a cell takes in a layer. */
size_t kv_cache_layer_bytes(const kv_cache_layer *l);

typedef struct kv_cache_spec {
    const kv_cache_layer *layers; /* copied */
    int32_t n_layers;
    int32_t n_cells;     /* all sequences together; at least 1 */
    int32_t n_sequences; /* at least 1 */
    int32_t n_batch;     /* tokens of one append at most */
    bool can_turn;       /* positions may move: every layer's rotation adds up */
    int32_t margin;      /* positions kept behind a window, for going back; < 0: windows keep everything */
    int32_t n_pin;       /* first positions of a sequence that windows keep too */
} kv_cache_spec;

/* Cells that the layers of a window (0: none) need: no more than n_cells, which makes them part of group 0.
 */
int32_t kv_cache_window_cells(const kv_cache_spec *spec, int32_t window);

typedef struct kv_cache kv_cache;

/* Memory is reserved here and committed as cells are written. */
kv_status kv_cache_create(kv_cache **out, const kv_cache_spec *spec);
void kv_cache_destroy(kv_cache *c);

/* Borrowed; its address does not change. */
kv_store *kv_cache_store(kv_cache *c, int32_t layer);
int32_t kv_cache_n_groups(const kv_cache *c);
int32_t kv_cache_group(const kv_cache *c, int32_t layer);
/* Of group 0, which has room for whatever may be appended. */
int32_t kv_cache_free_cells(const kv_cache *c);
int32_t kv_cache_group_cells(const kv_cache *c, int32_t group);
int32_t kv_cache_group_free(const kv_cache *c, int32_t group);
/* One cell in every group. */
int64_t kv_cache_bytes_per_cell(const kv_cache *c);

/* ---- sequences; ranges are true positions [p0, p1), p1 < 0: to the end ---- */

int64_t kv_cache_begin(const kv_cache *c, int32_t seq);  /* first position; 0 when empty */
int64_t kv_cache_end(const kv_cache *c, int32_t seq);    /* last position + 1 */
int64_t kv_cache_tokens(const kv_cache *c, int32_t seq); /* cells of group 0 */
/* Distinct turns among its spans. */
int32_t kv_cache_frames(const kv_cache *c, int32_t seq);
/* Positions may move; false after a kv_fail that says why not. */
bool kv_cache_can_turn(const kv_cache *c);

/* All of them change everything or nothing. Removing the end of a sequence cannot fail for want of memory. A
 * shift may carry cells over others, but not onto them. KVANT_UNSUPPORTED: a window would have to see
 * positions that were released. */
kv_status kv_cache_remove(kv_cache *c, int32_t seq, int64_t p0, int64_t p1);
kv_status kv_cache_shift(kv_cache *c, int32_t seq, int64_t p0, int64_t p1, int64_t delta);
kv_status kv_cache_drop(kv_cache *c, int32_t seq, int64_t p0, int64_t p1);
/* `to` becomes the positions [p0, p1) of `from`; cells are shared. */
kv_status kv_cache_copy(kv_cache *c, int32_t to, int32_t from, int64_t p0, int64_t p1);
/* Empties all other sequences. */
kv_status kv_cache_keep(kv_cache *c, int32_t seq);
/* The highest position, at most `pos`, that the sequence can be cut back to and go on from. */
int64_t kv_cache_rewind(const kv_cache *c, int32_t seq, int64_t pos);

/* ---- appending ---- */

typedef struct kv_cache_part {
    int32_t seq, n_tokens;
} kv_cache_part;

/* Reserves cells at the ends of the sequences (each at most once) and fills the views. KVANT_CONTEXT_FULL
 * names what was asked for and what is free; nothing has changed then. Several appends make one evaluation,
 * which ends with a commit or a rollback; neither can fail. Any other operation commits. */
kv_status kv_cache_append(kv_cache *c, const kv_cache_part *parts, int32_t n_parts);
void kv_cache_commit(kv_cache *c);
/* All sequences are again as they were at the last commit. */
void kv_cache_rollback(kv_cache *c);
/* Of the last append; the addresses do not change, the contents do. */
const kv_batch_view *kv_cache_batch(const kv_cache *c, int32_t group);
const kv_angles *kv_cache_angles(const kv_cache *c, int32_t group);

/* ---- rewriting keys ----
 *
 * The same operations, but the keys themselves are rotated and no turn is left. One of the `begin` functions
 * works out which cells are to be copied first, because another sequence shares them, and which are to be
 * rotated; nothing has changed yet. Then every layer's cache_move and cache_shift are run on what
 * kv_cache_moves and kv_cache_turns say, and kv_cache_commit_rewrite follows, which cannot fail; or, if they
 * were not run, kv_cache_abort_rewrite. KVANT_CONTEXT_FULL: no cells to copy to. */
kv_status kv_cache_begin_shift(kv_cache *c, int32_t seq, int64_t p0, int64_t p1, int64_t delta);
kv_status kv_cache_begin_drop(kv_cache *c, int32_t seq, int64_t p0, int64_t p1);
/* All spans into the frame that most cells are in. */
kv_status kv_cache_begin_compact(kv_cache *c, int32_t seq);
/* Positions of [p0, p1) are divided: several tokens may share one afterwards, but not with those outside. */
kv_status kv_cache_begin_divide(kv_cache *c, int32_t seq, int64_t p0, int64_t p1, int64_t divisor);
void kv_cache_commit_rewrite(kv_cache *c);
void kv_cache_abort_rewrite(kv_cache *c);
/* The addresses do not change, the contents do. */
const kv_cell_moves *kv_cache_moves(const kv_cache *c, int32_t group);
const kv_cell_turns *kv_cache_turns(const kv_cache *c, int32_t group);

/* ---- saving and restoring ---- */

typedef struct kv_span_list {
    const kv_span *at;
    size_t count;
} kv_span_list;

/* In order of position; borrowed until the sequence changes. The tokens of all groups are the same. */
kv_span_list kv_cache_spans(const kv_cache *c, int32_t group, int32_t seq);
/* Gives a sequence, in place of what it has, cells at the stored positions and turns of lists[group]
 * (first_cell: -1 for what is released; else it does not matter). Windows release what they would not keep.
 * The lists must name the same positions. Where the cells are, kv_cache_spans says afterwards: their contents
 * are the caller's to write. KVANT_CONTEXT_FULL names what is asked for and what there is. */
kv_status kv_cache_adopt(kv_cache *c, int32_t seq, const kv_span_list *lists);
