/* arch.h: a model architecture: how its file is read. All of them are decoders whose blocks differ in data
 * (norms, biases, activation, windows), so one builder (decoder.c) serves them; a new one is one file with a
 * const kv_arch and one line in archs.inc. */
#pragma once

#include "model/hparams.h"

typedef enum kv_arch_tensors { /* tensors that a file of this architecture must have */
                               KV_ARCH_QKV_BIAS = 1,
                               KV_ARCH_QK_NORM = 2,
                               KV_ARCH_POST_NORM = 4, /* after attention and after the feed-forward */
} kv_arch_tensors;

typedef struct kv_arch {
    const char *name; /* general.architecture */
    kv_rope_pairing pairing;
    kv_glu_act act;
    unsigned tensors; /* kv_arch_tensors */
    /* Completes what kv_hparams_read read: windows, local rope, scales. NULL: nothing to add. */
    kv_status (*adjust)(kv_hparams *h, const kv_gguf *g);
} kv_arch;

#define KV_ARCH(name) extern const kv_arch kv_arch_##name;
#include "model/archs.inc"
#undef KV_ARCH

/* By general.architecture; an unknown one is KVANT_UNSUPPORTED and lists those there are. */
kv_status kv_arch_find(const kv_arch **out, const kv_gguf *g);

/* Reads "<arch>.attention.sliding_window" and sets it on all layers but every default_period-th (0: on all);
 * a key "sliding_window_pattern" (a period or a flag for each layer) takes its place. */
kv_status kv_arch_read_windows(kv_hparams *h, const kv_gguf *g, const char *arch, int32_t default_window,
                               int32_t default_period);
