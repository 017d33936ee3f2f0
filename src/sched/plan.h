/* plan.h: from a graph to something that runs. Nodes are placed on devices (a node that touches a store where
 * the store is, others where their weights are), what a device cannot do is expanded into smaller ops or
 * moved to one that can, copies are put where values cross between devices, stages are formed, and scratch
 * tensors share memory by lifetime. Made once, run many times: what changes from run to run (token ids,
 * cells, runs) is read through the nodes' parameters. */
#pragma once

#include "core/graph.h"

typedef struct kv_plan kv_plan;

/* Takes the graph (also on failure; it is empty afterwards). `devices`: all that its nodes may be on, in
 * order of preference for nodes that nothing ties to one. */
kv_status kv_plan_create(kv_plan **out, kv_graph *g, kv_device *const *devices, int32_t n_devices);
void kv_plan_destroy(kv_plan *p);

/* Segments in order, each behind its copies; returns when every device is done. Allocates nothing. The cancel
 * flag is looked at between stages; on any failure the outputs are incomplete. */
kv_status kv_plan_run(kv_plan *p, atomic_bool *cancel);

/* Bytes of scratch and workspace, on all devices and on one. */
size_t kv_plan_scratch_bytes(const kv_plan *p);
size_t kv_plan_device_bytes(const kv_plan *p, const kv_device *d);
/* Bytes that one run copies between devices. */
size_t kv_plan_crossing_bytes(const kv_plan *p);

/* The placement dump: one call for each node and for each copy, in order. */
typedef struct kv_plan_line {
    const char *label, *op, *device, *kernel;
    int32_t stage;
    const kv_node *node;   /* of a copy ("copy", its kernel "from cpu:0"): the first that reads it */
    const char *from;      /* of a copy: the device it comes from; else NULL */
    const kv_tensor *copy; /* of a copy: what is filled on `device`; else NULL */
    size_t bytes;          /* of a copy */
} kv_plan_line;
void kv_plan_dump(const kv_plan *p, void (*line)(void *user, const kv_plan_line *line), void *user);
