/* place.h: which device runs which node. */
#pragma once

#include "core/graph.h"

/* Sets node->device of every node, replacing nodes by their expansion where the device cannot run them as
 * they are. KVANT_UNSUPPORTED names a node that no device can run, or a tensor that would have to cross
 * between devices. */
kv_status kv_place(kv_graph *g, kv_device *const *devices, int32_t n_devices);
