/* stage.h: which nodes may run side by side, and which in one go on a device. */
#pragma once

#include "core/graph.h"

/* stage_of[i] of every node, counted over the whole graph, never falling: a node that needs something made in
 * the current stage starts the next. */
kv_status kv_stage_assign(const kv_graph *g, int32_t *stage_of);
/* The first node of the segment (nodes in a row on one device) that node i is in. */
int32_t kv_segment_begin(const kv_graph *g, int32_t i);
/* Fills segment->stage_ends from the stages of its nodes. */
kv_status kv_stage_ends(kv_segment *s, const int32_t *stage_of);
