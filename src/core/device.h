/* device.h: what a device is to the rest: memory of its own, and ops run on it. A back end is one folder
 * under device/ that fills this table. `supports` comes from the same table that dispatches, so it cannot
 * claim what `run` cannot do. */
#pragma once

#include "base/memory.h"
#include "base/status.h"
#include "layout/layout.h"

#include <stdatomic.h>

typedef struct kv_device kv_device;
struct kv_node;

typedef struct kv_buffer {
    kv_device *device;
    size_t bytes;
    uint8_t *host; /* NULL where the host cannot reach the memory */
    void *handle;  /* the device's own; NULL for memory that the device only borrows */
} kv_buffer;

/* A run of nodes on one device, cut into stages: nodes of a stage do not depend on each other. */
typedef struct kv_segment {
    kv_device *device;
    struct kv_node **nodes;
    int32_t n_nodes;
    const int32_t *stage_ends; /* stage s is nodes [stage_ends[s-1], stage_ends[s]) */
    int32_t n_stages;
    kv_arena *arena;   /* of the plan: what `prepare` needs per node lives here */
    kv_buffer work;    /* workspace, allocated by `prepare`, released with the plan */
    size_t work_bytes; /* of one thread (or queue) */
} kv_segment;

struct kv_device {
    char name[16]; /* "cpu:0" */
    void *impl;
    size_t memory_bytes; /* all it has; 0 if that is not known */
    /* Zeroed memory that costs nothing until it is touched. */
    kv_status (*alloc)(kv_device *d, kv_buffer *out, size_t bytes);
    void (*release)(kv_buffer *b);
    /* The layout that this device's matmul likes best for weights of a dtype; `rows` if it has no wish. */
    const kv_layout *(*weight_layout)(const kv_device *d, const kv_dtype *weights);
    /* The same for keys and values of a dtype in a KV cache. */
    const kv_layout *(*key_layout)(const kv_device *d, const kv_dtype *keys);
    const kv_layout *(*value_layout)(const kv_device *d, const kv_dtype *values);
    bool (*supports)(const kv_device *d, const struct kv_node *node);
    /* Called once per plan before the first run: resolves kernels into node->impl, allocates segment->work.
     * After it a run allocates nothing. */
    kv_status (*prepare)(kv_device *d, kv_segment *segment);
    /* Runs the stages in order; stops with KVANT_CANCELLED at a stage boundary once *cancel is set. */
    kv_status (*run)(kv_device *d, const kv_segment *segment, atomic_bool *cancel);
    /* The kernel that a prepared node runs on, for the placement dump. */
    const char *(*kernel_name)(const kv_device *d, const struct kv_node *node);
    void (*destroy)(kv_device *d);
};
