/* cache_write.h: new keys and values into the cells of a store: rotated, coded, scattered. */
#pragma once

#include "op/op.h"
#include "op/store.h"

typedef struct kv_cache_write_params {
    const kv_rope *rope;
    kv_store *store;
    const kv_batch_view *batch; /* its cells say where token i goes; read when the node runs */
} kv_cache_write_params;

/* k: tokens x (n_kv_heads * k_dim), v likewise; table: from kv_rope_table with the same rope (NULL if n_rot
 * is 0). */
void kv_cache_write(kv_graph *g, const kv_cache_write_params *p, kv_tensor *k, kv_tensor *v,
                    kv_tensor *table);
