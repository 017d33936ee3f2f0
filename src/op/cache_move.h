/* cache_move.h: coded keys and values from cells of a store to other cells of it, byte for byte. */
#pragma once

#include "op/op.h"
#include "op/store.h"

/* Cell to[i] becomes a copy of from[i]. No cell is both copied from and to, none is copied to twice. */
typedef struct kv_cell_moves {
    int32_t n;
    const int32_t *from, *to;
} kv_cell_moves;

typedef struct kv_cache_move_params {
    kv_store *store;
    const kv_cell_moves *moves; /* read when the node runs */
} kv_cache_move_params;

void kv_cache_move(kv_graph *g, const kv_cache_move_params *p);

/* One cell of one of the store's tensors; `plain` has room for a coded row. */
void kv_cell_copy(const kv_tensor *t, int32_t from, int32_t to, void *plain);
