/* model.h: a model ready to run: shape, weights, tokenizer, the file they came from. Immutable once opened.
 */
#pragma once

#include "model/weights.h"

typedef struct kv_model {
    kv_gguf *gguf;
    const kv_arch *arch;
    kv_hparams hparams;
    kv_weights weights;
} kv_model;

typedef struct kv_model_source {
    kv_gguf *gguf; /* taken, also on failure */
    kv_split split;
    kv_pool *pool;   /* packs weights */
    int32_t n_vocab; /* of the tokenizer; the embedding must have as many rows */
    bool (*progress)(void *user, double fraction);
    void *user;
} kv_model_source;

kv_status kv_model_load(kv_model *m, const kv_model_source *source);
void kv_model_clear(kv_model *m);

/* The rotations of a context of n_ctx tokens (LongRoPE chooses its factors by it): ropes[KV_N_ROPES],
 * frequencies allocated from `arena`. */
kv_status kv_model_ropes(kv_rope *ropes, const kv_model *m, int32_t n_ctx, kv_arena *arena);
