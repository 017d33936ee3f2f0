/* device.h: what a device is to the rest: memory of its own, and a queue of work on it. A back end is one
 * folder device/<kind>/ that fills these tables and one line in device/devices.inc; docs/adding-a-device.md
 * goes through it. Above this header nobody knows where memory is, nor that work is finished before `sync`.
 *
 * What a back end promises:
 *
 *   - Memory is its own. The host reaches it only where `host` is set; everything else goes through upload,
 *     download and copy. A node whose tensors lie elsewhere is refused (kv_segment_check_memory).
 *   - One queue in order: what was submitted, uploaded and copied earlier is seen by what comes later. submit
 *     may return before the work is done; download and sync wait for it.
 *   - `supports` comes from the table that dispatches, so that it cannot claim what submit cannot do.
 *   - Nothing is allocated after `bind`.
 *   - Results depend on the nodes alone, not on how the work is spread over threads or queues.
 *
 * What the scheduler promises: memory that nodes and their parameters point to (tokens, cells, runs: all of
 * it on the host) does not change between submit and sync; a failed or cancelled run ends with sync on every
 * device before anything is released.
 */
#pragma once

#include "base/memory.h"
#include "base/status.h"
#include "layout/layout.h"

#include <stdatomic.h>

typedef struct kv_device kv_device;
typedef struct kv_device_kind kv_device_kind;
struct kv_node;

enum { KV_MAX_DEVICES = 16 };

typedef struct kv_buffer {
    kv_device *device;
    size_t bytes;
    uint8_t *host; /* NULL where the host cannot reach the memory */
    void *handle;  /* the device's own; NULL for memory that the device only borrows */
} kv_buffer;

/* Bytes [at, at + bytes) of a buffer. */
typedef struct kv_range {
    const kv_buffer *buffer;
    size_t at, bytes;
} kv_range;

/* A run of nodes on one device, cut into stages: nodes of a stage do not depend on each other. */
typedef struct kv_segment {
    kv_device *device;
    struct kv_node **nodes;
    int32_t n_nodes;
    const int32_t *stage_ends; /* stage s is nodes [stage_ends[s-1], stage_ends[s]) */
    int32_t n_stages;
    kv_arena *arena;     /* of the plan: what `prepare` needs per node lives here */
    size_t work_bytes;   /* workspace that the segment needs: set by `prepare` */
    size_t thread_bytes; /* of that, what one thread (or queue) has to itself: the device's own business */
    kv_buffer work; /* at least work_bytes, shared with other segments of the device; set before `bind` */
} kv_segment;

typedef struct kv_device_options {
    int32_t n_threads; /* of the host, for devices that compute with them; at least 1 */
    unsigned cpu;      /* kv_cpu_flags that such devices may use */
} kv_device_options;

/* A kind of device: "cpu", ... */
struct kv_device_kind {
    const char *name;
    bool shares_memory; /* its devices are parts of one memory, so that their needs add up */
    /* How many of the kind there are: indices 0 .. count-1 can be opened. */
    int32_t (*count)(void);
    kv_status (*open)(kv_device **out, int32_t index, const kv_device_options *o);
};

struct kv_device {
    const kv_device_kind *kind;
    char name[16]; /* "cpu:0" */
    void *impl;
    size_t memory_bytes; /* all it has; 0 if that is not known */
    int32_t n_threads;   /* of the host that work for it; 0: none */
    const char *kernels; /* "avx512", ...: for reports */

    /* ---- memory */

    /* Zeroed memory that costs nothing until it is touched. */
    kv_status (*alloc)(kv_device *d, kv_buffer *out, size_t bytes);
    /* Waits for what still uses it. */
    void (*release)(kv_buffer *b);
    /* Memory of the host (a file's map) that the device can read where it is; NULL: it cannot, and takes an
     * upload. */
    kv_status (*borrow)(kv_device *d, kv_buffer *out, const void *host, size_t bytes);
    /* From and to memory of the host: `from` may be reused, and `to` is filled, when they return. From any
     * thread. */
    kv_status (*upload)(kv_range to, const void *from);
    kv_status (*download)(void *to, kv_range from);
    /* Between buffers of devices of this kind, after all that was submitted to both; NULL: there is no way
     * but through the host. */
    kv_status (*copy)(kv_range to, kv_range from);

    /* ---- wishes */

    /* The layout that this device's matmul likes best for weights of a dtype; `rows` if it has no wish. */
    const kv_layout *(*weight_layout)(const kv_device *d, const kv_dtype *weights);
    /* The same for keys and values of a dtype in a KV cache. */
    const kv_layout *(*key_layout)(const kv_device *d, const kv_dtype *keys);
    const kv_layout *(*value_layout)(const kv_device *d, const kv_dtype *values);

    /* ---- work */

    bool (*supports)(const kv_device *d, const struct kv_node *node);
    /* Once per plan: checks that all memory is its own, resolves kernels into node->impl, says what workspace
     * the segment needs. */
    kv_status (*prepare)(kv_device *d, kv_segment *segment);
    /* Once per plan, behind `prepare` and with segment->work: addresses are final. */
    kv_status (*bind)(kv_device *d, kv_segment *segment);
    /* Runs the stages in order; stops with KVANT_CANCELLED at a stage boundary once *cancel is set. May
     * return early; then `sync` tells how it went. */
    kv_status (*submit)(kv_device *d, const kv_segment *segment, atomic_bool *cancel);
    /* Waits for all that was submitted; the first failure since the last sync. NULL: submit has waited. */
    kv_status (*sync)(kv_device *d);
    /* The kernel that a prepared node runs on, for the placement dump. */
    const char *(*kernel_name)(const kv_device *d, const struct kv_node *node);
    void (*destroy)(kv_device *d);
};

/* All that was submitted to the device is done. */
kv_status kv_device_sync(kv_device *d);
/* Bytes between any two devices, by the shortest way: within their kind, else through memory of one that the
 * host reaches, else through `staging`. In order with what was submitted to both. */
kv_status kv_device_copy(kv_range to, kv_range from, void *staging);
/* Bytes of staging that such a copy needs: 0 or all of them. */
size_t kv_device_staging(kv_range to, kv_range from);
