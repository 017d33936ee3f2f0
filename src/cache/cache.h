/* cache.h: the KV cache of a session: cells in stores (one per layer), and sequences as lists of spans over
 * them.
 *
 * A cell holds K and V of one token in every layer; its K is rotated by its *stored* position. A span is a
 * run of cells of a sequence with consecutive positions:
 *
 *     span  {first_cell, n_cells, stored, turn}      true position of its cell i = stored + turn + i
 *
 * Moving tokens (shift) changes `turn` and nothing else; queries are turned the opposite way when they meet
 * the span (op/attend.h). New tokens are written in the frame of the span they extend, so shifts never add
 * frames of their own. Cells are counted: a copy of a sequence shares them, any free cell serves any
 * sequence, none is ever moved. Cells come from pages (64 in a row) so that a sequence's cells lie together.
 */
#pragma once

#include "op/store.h"

enum { KV_PAGE_CELLS = 64 };

typedef struct kv_cache_layer {
    kv_device *device;
    const kv_dtype *k_dtype, *v_dtype;
    const kv_layout *k_layout, *v_layout;
    int32_t n_kv_heads, k_dim, v_dim;
    bool k_rotated, v_rotated; /* by the Hadamard transform before they are coded */
    const kv_centre *centre;   /* borrowed; NULL: none */
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
} kv_cache_spec;

typedef struct kv_cache kv_cache;

/* Memory is reserved here and committed as cells are written. */
kv_status kv_cache_create(kv_cache **out, const kv_cache_spec *spec);
void kv_cache_destroy(kv_cache *c);

/* Borrowed; its address does not change. */
kv_store *kv_cache_store(kv_cache *c, int32_t layer);
int32_t kv_cache_free_cells(const kv_cache *c);
int64_t kv_cache_bytes_per_cell(const kv_cache *c);

/* ---- sequences; ranges are true positions [p0, p1), p1 < 0: to the end ---- */

int64_t kv_cache_end(const kv_cache *c, int32_t seq);    /* last position + 1 */
int64_t kv_cache_tokens(const kv_cache *c, int32_t seq); /* cells */
/* Distinct turns among its spans. */
int32_t kv_cache_frames(const kv_cache *c, int32_t seq);

/* All of them change everything or nothing. Removing the end of a sequence cannot fail for want of memory. A
 * shift may carry cells over others, but not onto them. */
kv_status kv_cache_remove(kv_cache *c, int32_t seq, int64_t p0, int64_t p1);
kv_status kv_cache_shift(kv_cache *c, int32_t seq, int64_t p0, int64_t p1, int64_t delta);
kv_status kv_cache_drop(kv_cache *c, int32_t seq, int64_t p0, int64_t p1);
kv_status kv_cache_copy(kv_cache *c, int32_t to, int32_t from);

/* ---- appending ---- */

typedef struct kv_cache_part {
    int32_t seq, n_tokens;
} kv_cache_part;

/* Reserves cells at the ends of the sequences (each at most once) and fills the views. KVANT_CONTEXT_FULL
 * names what was asked for and what is free; nothing has changed then. Undone by kv_cache_remove of what was
 * appended. */
kv_status kv_cache_append(kv_cache *c, const kv_cache_part *parts, int32_t n_parts);
/* Of the last append; the addresses do not change, the contents do. */
const kv_batch_view *kv_cache_batch(const kv_cache *c);
const kv_angles *kv_cache_angles(const kv_cache *c);
