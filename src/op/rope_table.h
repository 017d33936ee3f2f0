/* rope_table.h: the angles of one evaluation, computed once for all layers that rotate alike. */
#pragma once

#include "op/op.h"
#include "op/store.h"

typedef struct kv_rope_table_params {
    const kv_rope *rope;
    const kv_angles *angles; /* read when the node runs; at most out->rows rows */
} kv_rope_table_params;

/* `rows` >= n_tokens + n_turns rows of rope->n_rot floats. */
kv_tensor *kv_rope_table(kv_graph *g, const kv_rope_table_params *p, int64_t rows);
