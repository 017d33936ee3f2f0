/* matmul.h: activations times weights, with what usually follows. */
#pragma once

#include "op/op.h"

typedef struct kv_matmul_params {
    float softcap; /* out = softcap * tanh(out / softcap); 0 = off */
} kv_matmul_params;

/* out[i][r] = sum over c of x[i][c] * weight[r][c] + bias[r] + residual[i][r], in f32. bias (1 x rows) and
 * residual may be NULL. */
kv_tensor *kv_matmul(kv_graph *g, const kv_matmul_params *p, kv_tensor *x, kv_tensor *weight, kv_tensor *bias,
                     kv_tensor *residual, const kv_dtype *out);
