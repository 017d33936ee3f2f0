/* embed.h: rows of the token embedding. */
#pragma once

#include "op/op.h"

typedef struct kv_embed_params {
    const int32_t *tokens; /* out->rows ids, read when the node runs; each below the table's rows */
    float scale;           /* multiplies every number (Gemma: sqrt of the width); 1 otherwise */
} kv_embed_params;

/* n x table->cols numbers of dtype `out`. */
kv_tensor *kv_embed(kv_graph *g, const kv_embed_params *p, kv_tensor *table, int64_t n, const kv_dtype *out);
