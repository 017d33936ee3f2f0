/* scratch.h: memory for the tensors between nodes. */
#pragma once

#include "core/graph.h"

/* Gives every scratch tensor that a node writes an offset in one buffer; tensors alive in a common stage
 * never overlap. Allocates the buffer on the nodes' device. */
kv_status kv_scratch_bind(kv_graph *g, const int32_t *stage_of, kv_buffer *scratch);
