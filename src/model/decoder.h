/* decoder.h: the forward pass of a decoder as graph nodes. It names layers and tensors, never dtypes, layouts
 * or devices. */
#pragma once

#include "cache/cache.h"
#include "model/model.h"

typedef struct kv_forward {
    kv_graph *graph;
    const kv_model *model;
    kv_cache *cache;
    const kv_rope *ropes;  /* KV_N_ROPES */
    const kv_dtype *act;   /* of the activations that quantized weights multiply; NULL: floats everywhere */
    const int32_t *tokens; /* n_tokens ids, read when the graph runs, like the next */
    const int32_t *output_rows; /* n_outputs tokens whose logits are wanted */
    int32_t n_tokens, n_outputs;
    int32_t n_table_rows; /* of the rope tables: tokens and turns */
} kv_forward;

/* Logits, n_outputs x vocabulary, or NULL (see graph->status). n_outputs 0: NULL, only the cache is filled.
 */
kv_tensor *kv_decoder_forward(const kv_forward *f);
