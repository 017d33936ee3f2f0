/* glu.h: gated linear units (Shazeer 2020): a gate's activation times a value. */
#pragma once

#include "op/op.h"

typedef enum kv_glu_act { KV_GLU_SILU, KV_GLU_GELU /* tanh form */ } kv_glu_act;

typedef struct kv_glu_params {
    kv_glu_act act;
} kv_glu_params;

/* act(gate) * up, number by number. */
kv_tensor *kv_glu(kv_graph *g, const kv_glu_params *p, kv_tensor *gate, kv_tensor *up, const kv_dtype *out);

/* act(x * w_gate^T) * (x * w_up^T): both matmuls of a feed-forward block without their results in memory.
 * Expands to matmul, matmul, glu. */
kv_tensor *kv_matmul_glu(kv_graph *g, const kv_glu_params *p, kv_tensor *x, kv_tensor *w_gate,
                         kv_tensor *w_up, const kv_dtype *out);
