/* centre_set.h: the mean key of every KV head of a model, before rotation, and what becomes of it: the centre
 * that a cache layer stores keys without (op/centre.h). A head's centre is its mean in the pairs where that
 * is longest, and nothing in the others. */
#pragma once

#include "model/model.h"
#include "op/centre.h"

typedef enum kv_centre_source {
    KV_CENTRE_NONE,
    KV_CENTRE_BIASES,    /* what the model adds to every key: there without measuring anything */
    KV_CENTRE_CALIBRATED /* the mean over a text: calibrate.c */
} kv_centre_source;

typedef struct kv_centre_set {
    kv_centre_source source;
    int32_t n_layers, k_dim;
    int32_t n_pairs;        /* of each head at most; 0: keys are stored as they are */
    const int32_t *n_heads; /* n_layers: KV heads */
    float **means;          /* n_layers: n_heads x k_dim; all zero at first */
    kv_arena arena;         /* owns the arrays */
} kv_centre_set;

/* Of a zeroed struct. */
kv_status kv_centre_set_init(kv_centre_set *set, const kv_hparams *h);
void kv_centre_set_clear(kv_centre_set *set);
/* The key biases; a model without them, or with a norm behind them, leaves the set with no pairs. */
kv_status kv_centre_set_from_biases(kv_centre_set *set, const kv_model *m);

/* The centre of a layer that rotates by `rope`, allocated from `arena`; NULL if the set has none for it. */
kv_status kv_centre_set_layer(const kv_centre **out, const kv_centre_set *set, int32_t layer,
                              const kv_rope *rope, kv_arena *arena);

/* ---- centre_file.c: docs/centre-format.md ---- */

/* Of a zeroed struct. The file must have been made for this model: its fingerprint is compared. */
kv_status kv_centre_set_read(kv_centre_set *set, const char *path, const kv_hparams *h,
                             const char *fingerprint);
/* Nothing appears under `path` before all of it is written. */
kv_status kv_centre_set_write(const kv_centre_set *set, const char *path, const char *fingerprint);
