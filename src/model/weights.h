/* weights.h: a model's tensors, each layer's on its device, as the device wants them. Matrices that matmul
 * reads are packed once into the layout the device likes best, and the file's pages given back as they are
 * copied; what needs no packing stays in the file's map where the device reads that, and is uploaded where
 * not. Vectors are small and become f32. */
#pragma once

#include "base/threads.h"
#include "model/arch.h"

/* Layers over devices, in order: device i has shares[i] of them in proportion; NULL: even shares. The
 * embedding is beside the first layer, the output beside the last. */
typedef struct kv_split {
    kv_device *const *devices;
    const int32_t *shares; /* not negative, not all 0 */
    int32_t n_devices;
} kv_split;
int32_t kv_split_device(const kv_split *s, int32_t layer, int32_t n_layers);

typedef struct kv_layer_weights { /* absent ones are NULL */
    kv_device *device;
    kv_tensor *attn_norm, *attn_post_norm, *ffn_norm, *ffn_post_norm;
    kv_tensor *q, *k, *v, *q_bias, *k_bias, *v_bias, *q_norm, *k_norm;
    kv_tensor *attn_out, *attn_out_bias;
    kv_tensor *gate, *up, *down, *gate_bias, *up_bias, *down_bias;
} kv_layer_weights;

/* What one device holds. */
typedef struct kv_weights_shard {
    kv_device *device;
    kv_buffer matrices, vectors;  /* packed or uploaded; f32 */
    KV_VEC(kv_buffer *) borrowed; /* parts of the file's map */
    int64_t bytes;                /* of all that */
} kv_weights_shard;

typedef struct kv_weights {
    kv_arena arena;                          /* owns the tensors and layers */
    kv_tensor *embed, *output, *output_norm; /* output may be embed, if both are on one device */
    const float *rope_factors, *rope_factors_long, *rope_factors_short; /* on the host; NULL: none */
    kv_layer_weights *layers;
    kv_weights_shard *shards; /* one for each device, in the order of the split */
    int32_t n_shards;
    int64_t bytes_per_token; /* that a decode step reads */
} kv_weights;

typedef struct kv_weights_source {
    const kv_gguf *gguf; /* stays open as long as the weights */
    const kv_hparams *hparams;
    const kv_arch *arch;
    kv_split split;
    kv_pool *pool;                                 /* packs */
    bool (*progress)(void *user, double fraction); /* may be NULL; false cancels */
    void *user;
} kv_weights_source;

/* Checks every tensor's presence, shape and type. */
kv_status kv_weights_load(kv_weights *w, const kv_weights_source *source);
void kv_weights_clear(kv_weights *w);
