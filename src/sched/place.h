/* place.h: which device runs which node, and what has to cross between devices for that. */
#pragma once

#include "core/graph.h"

/* A value made on one device and read on another: `to` is a tensor there, filled before the segment of its
 * first reader. */
typedef struct kv_crossing {
    const kv_tensor *from;
    kv_tensor *to;
    int32_t reader;   /* index of that node in the graph */
    const char *text; /* "from cpu:0" */
} kv_crossing;

typedef struct kv_placement {
    kv_buffer
        *scratch; /* one for each device, in the graph's arena: what tensors without memory are put in */
    int32_t n_devices;
    KV_VEC(kv_crossing) crossings; /* in the order of their readers */
} kv_placement;

/* Sets node->device of every node, and the buffer of every tensor that had none to the scratch of its device
 * (without memory as yet). Nodes are replaced by their expansion where the device cannot run them as they
 * are; a node without inputs is made anew on each device that reads it; any other value is copied, once for
 * each device that reads it. Weights and stores are never copied: KVANT_UNSUPPORTED names the node that would
 * need it, or that no device can run. */
kv_status kv_place(kv_placement *out, kv_graph *g, kv_device *const *devices, int32_t n_devices);
void kv_placement_clear(kv_placement *p);

static inline bool kv_is_scratch(const kv_placement *p, const kv_tensor *t) {
    return t->buffer >= p->scratch && t->buffer < p->scratch + p->n_devices;
}
