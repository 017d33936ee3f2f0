/* scratch.h: memory for the tensors between nodes. */
#pragma once

#include "sched/place.h"

/* Gives every tensor in the placement's scratch an offset in the buffer of its device, and the buffers their
 * memory; tensors alive in a common stage never overlap. */
kv_status kv_scratch_bind(const kv_graph *g, const kv_placement *p, const int32_t *stage_of);
void kv_scratch_release(kv_placement *p);
