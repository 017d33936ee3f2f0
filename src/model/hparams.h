/* hparams.h: what a GGUF file says about a model's shape, read once, checked, and free of keys afterwards. */
#pragma once

#include "gguf/gguf.h"
#include "op/glu.h"
#include "op/rope.h"

enum { KV_MAX_LAYERS = 1024, KV_N_ROPES = 2 };

/* A model may rotate in two ways: most layers of some models see a window and have frequencies of their own.
 */
typedef enum kv_rope_kind { KV_ROPE_GLOBAL, KV_ROPE_LOCAL } kv_rope_kind;

typedef struct kv_layer_hparams {
    int32_t n_heads, n_kv_heads, n_ff;
    int32_t window; /* positions a query sees; 0 = all */
    kv_rope_kind rope;
} kv_layer_hparams;

typedef struct kv_hparams {
    int32_t n_layers, n_embd, n_ctx_train, k_dim, v_dim;
    kv_layer_hparams *layers; /* n_layers, owned */
    float norm_eps;
    float embed_scale, attn_scale;
    float attn_softcap, logit_softcap; /* 0 = off */
    kv_glu_act act;
    kv_rope_pairing pairing;
    kv_rope_spec rope[KV_N_ROPES]; /* without factors: those are tensors */
    float rope_magnitude;          /* of KV_ROPE_GLOBAL */
} kv_hparams;

/* Keys of the file under "<arch>." with the defaults of the format; windows and the local rope are the
 * architecture's business. */
kv_status kv_hparams_read(kv_hparams *h, const kv_gguf *g, const char *arch);
void kv_hparams_clear(kv_hparams *h);

/* Getters for "<arch>.<name>"; *out keeps its value if the key is absent. */
kv_status kv_hparams_i32(const kv_gguf *g, const char *arch, const char *name, kv_gguf_need need, int32_t low,
                         int32_t high, int32_t *out);
kv_status kv_hparams_f32(const kv_gguf *g, const char *arch, const char *name, kv_gguf_need need, float *out);
