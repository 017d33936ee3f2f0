/* cpu_op.h: how the CPU device runs an op. A driver cuts a node into items that threads take one by one;
 * results do not depend on who takes which, nor on how many threads there are. One file cpu_<op>.c and one
 * line in cpu_ops.inc; an op without a driver runs its scalar reference. */
#pragma once

#include "core/graph.h"
#include "device/cpu/kernel.h"

typedef struct kv_cpu_op kv_cpu_op;

/* node->impl: the head of every driver's own struct. */
typedef struct kv_cpu_impl {
    const kv_cpu_op *driver;
    const char *kernel;  /* name of the main kernel, for dumps */
    size_t work_bytes;   /* workspace of one thread */
    size_t shared_bytes; /* workspace of the node, shared by its phases */
    uint8_t *shared;     /* set by the device */
} kv_cpu_impl;

struct kv_cpu_op {
    const kv_op *op;
    int32_t n_phases; /* all items of a phase end before the next begins */
    bool (*accepts)(const kv_node *n, unsigned cpu);
    /* Sets n->impl (from the arena), kernels resolved. */
    kv_status (*prepare)(kv_node *n, unsigned cpu, kv_arena *arena);
    int64_t (*n_items)(const kv_node *n, int32_t phase);
    kv_status (*run)(const kv_node *n, int32_t phase, int64_t item, void *work);
};

#define KV_CPU_OP(name) extern const kv_cpu_op kv_cpu_##name;
#include "device/cpu/cpu_ops.inc"
#undef KV_CPU_OP

/* Codes a row of floats: the encode kernel of the dtype, or its scalar code. */
kv_encode_fn *kv_cpu_encoder(const kv_dtype *d, unsigned cpu);
/* The same for kv_dtype_encode_close. */
kv_encode_fn *kv_cpu_close_encoder(const kv_dtype *d, unsigned cpu);
kv_decode_fn *kv_cpu_decoder(const kv_dtype *d, unsigned cpu);
