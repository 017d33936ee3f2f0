/* norm.h: root mean square norm (Zhang and Sennrich 2019), over whole rows or over equal parts of them
 * (heads), with an optional sum added. */
#pragma once

#include "op/op.h"

typedef struct kv_norm_params {
    float eps;
    int64_t width; /* numbers normed together; divides x->cols */
} kv_norm_params;

/* out = norm(x) * weight + residual. weight is 1 x width; residual like x, or NULL. */
kv_tensor *kv_norm(kv_graph *g, const kv_norm_params *p, kv_tensor *x, kv_tensor *weight, kv_tensor *residual,
                   const kv_dtype *out);
