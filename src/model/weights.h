/* weights.h: a model's tensors where the device wants them. Matrices that matmul reads are packed once into
 * the layout the device likes best, and the file's pages given back as they are copied; what needs no packing
 * stays in the file's map. Vectors are small and become f32. */
#pragma once

#include "base/threads.h"
#include "model/arch.h"

typedef struct kv_layer_weights { /* absent ones are NULL */
    kv_tensor *attn_norm, *attn_post_norm, *ffn_norm, *ffn_post_norm;
    kv_tensor *q, *k, *v, *q_bias, *k_bias, *v_bias, *q_norm, *k_norm;
    kv_tensor *attn_out, *attn_out_bias;
    kv_tensor *gate, *up, *down, *gate_bias, *up_bias, *down_bias;
} kv_layer_weights;

typedef struct kv_weights {
    kv_arena arena;                          /* owns the tensors and layers */
    kv_tensor *embed, *output, *output_norm; /* output may be embed */
    kv_tensor *rope_factors, *rope_factors_long, *rope_factors_short;
    kv_layer_weights *layers;
    kv_buffer mapped, packed, vectors; /* the file; packed matrices; f32 vectors */
    int64_t bytes_per_token;           /* that a decode step reads */
} kv_weights;

typedef struct kv_weights_source {
    const kv_gguf *gguf; /* stays open as long as the weights */
    const kv_hparams *hparams;
    const kv_arch *arch;
    kv_device *device;
    kv_pool *pool;                                 /* packs */
    bool (*progress)(void *user, double fraction); /* may be NULL; false cancels */
    void *user;
} kv_weights_source;

/* Checks every tensor's presence, shape and type. */
kv_status kv_weights_load(kv_weights *w, const kv_weights_source *source);
void kv_weights_clear(kv_weights *w);
