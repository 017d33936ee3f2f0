/* graph.h: a list of nodes in the order they are evaluated. Ops add nodes through builder functions
 * (op/<name>.h) that take and return tensors. A failure is remembered in `status`; builders called after it,
 * or with a tensor that failed, return NULL, so that a model's forward pass reads as one and is checked once.
 */
#pragma once

#include "base/memory.h"
#include "core/tensor.h"

enum { KV_MAX_INPUTS = 5 };

typedef struct kv_graph kv_graph;
typedef struct kv_node kv_node;

/* An op says what it means. One file each, listed in op/ops.inc. */
typedef struct kv_op {
    const char *name;
    /* The shape rule: inputs, parameters and out fit each other. The builder checks with it; so do tests. */
    kv_status (*check)(const kv_node *node);
    /* The scalar truth, on tensors that the host reaches. */
    kv_status (*reference)(const kv_node *node);
    /* Replaces the node by smaller ones (appended to `g`) that a device may know; NULL if there are none. */
    kv_status (*expand)(kv_graph *g, const kv_node *node);
} kv_op;

struct kv_node {
    const kv_op *op;
    kv_tensor *in[KV_MAX_INPUTS]; /* absent optional inputs are NULL */
    kv_tensor *out;               /* NULL for ops that only write to a store */
    const void *params;           /* the op's own struct, in the graph's arena */
    const void *reads, *writes;   /* a store outside the graph, for ordering; or NULL */
    kv_device *home;              /* that store's device, where the node has to run; or NULL */
    const char *label;            /* "blk.3 attend", for dumps */
    kv_device *device;            /* set by the scheduler, which puts `out` there too */
    void *impl;                   /* the device's, set when the plan is prepared */
};

struct kv_graph {
    kv_arena arena;
    KV_VEC(kv_node *) nodes;
    KV_VEC(kv_tensor *) scratch; /* tensors without memory: the plan gives them some */
    kv_status status;
    const char *label; /* given to the nodes added next */
};

void kv_graph_init(kv_graph *g);
void kv_graph_clear(kv_graph *g);

/* A scratch tensor in the layout `rows`; cols must be whole blocks of the dtype. */
kv_tensor *kv_graph_tensor(kv_graph *g, const kv_dtype *dtype, int64_t rows, int64_t cols);
/* Adds a copy of `node` (label filled in, params copied: `params_bytes` of them) after checking it with its
 * op; returns node->out. */
kv_tensor *kv_graph_add(kv_graph *g, const kv_node *node, size_t params_bytes);

/* For `prepare`: every tensor and store of the segment's nodes lies in memory of its device. The failure
 * names the node, the tensor's device and the other. */
kv_status kv_segment_check_memory(const kv_segment *s);
