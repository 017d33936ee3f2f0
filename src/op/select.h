/* select.h: some rows of a matrix. */
#pragma once

#include "op/op.h"

typedef struct kv_select_params {
    const int32_t *rows; /* out->rows indices, read when the node runs */
} kv_select_params;

kv_tensor *kv_select(kv_graph *g, const kv_select_params *p, kv_tensor *x, int64_t n);
