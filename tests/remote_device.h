/* remote_device.h: a device as far from the host as one can be, for tests: its memory has no host address,
 * what is submitted or uploaded waits in a queue until somebody calls sync or download, and it runs
 * references, of the ops that it is told to know. What works with it assumes neither shared memory nor that
 * submit has run.
 */
#pragma once

#include "op/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { REMOTE_BUFFERS = 512, REMOTE_QUEUE = 512, REMOTE_OPS = 4 };

typedef struct remote_job { /* a segment, or an upload with a copy of its bytes */
    const kv_segment *segment;
    atomic_bool *cancel;
    kv_range to;
    void *bytes;
} remote_job;

typedef struct remote {
    kv_device device;
    const kv_op *refuses[REMOTE_OPS];
    kv_buffer *buffers[REMOTE_BUFFERS]; /* alive */
    remote_job queue[REMOTE_QUEUE];
    int32_t n_buffers, n_queued;
    int64_t uploaded, downloaded; /* bytes */
    int64_t n_runs;               /* segments */
    int32_t fail_at;              /* segment run that fails: its number from 1 on; 0: none */
} remote;

static inline kv_status remote_alloc(kv_device *d, kv_buffer *out, size_t bytes) {
    remote *r = d->impl;
    void *p = kv_alloc_aligned(1, bytes);
    if (!p) return KVANT_NO_MEMORY;
    assert_true(r->n_buffers < REMOTE_BUFFERS);
    *out = (kv_buffer){.device = d, .bytes = bytes, .handle = p};
    r->buffers[r->n_buffers++] = out;
    return KVANT_OK;
}

/* ---- the queue ---- */

static inline void remote_expose(remote *r, bool exposed) {
    for (int32_t i = 0; i < r->n_buffers; i++) r->buffers[i]->host = exposed ? r->buffers[i]->handle : NULL;
}

static inline kv_status remote_run(remote *r, const remote_job *j) {
    if (j->bytes) {
        memcpy((uint8_t *)j->to.buffer->handle + j->to.at, j->bytes, j->to.bytes);
        return KVANT_OK;
    }
    if (atomic_load(j->cancel)) return kv_fail(KVANT_CANCELLED, "cancelled");
    if (++r->n_runs == r->fail_at) return kv_fail(KVANT_FAILED, "%s: failed on purpose", r->device.name);
    kv_status status = KVANT_OK;
    remote_expose(r, true);
    for (int32_t i = 0; !status && i < j->segment->n_nodes; i++)
        status = j->segment->nodes[i]->op->reference(j->segment->nodes[i]);
    remote_expose(r, false);
    return status;
}

static inline kv_status remote_sync(kv_device *d) {
    remote *r = d->impl;
    kv_status status = KVANT_OK;
    for (int32_t i = 0; i < r->n_queued; i++) {
        if (!status) status = remote_run(r, &r->queue[i]);
        kv_free(r->queue[i].bytes);
    }
    r->n_queued = 0;
    return status;
}

static inline kv_status remote_submit(kv_device *d, const kv_segment *s, atomic_bool *cancel) {
    remote *r = d->impl;
    assert_true(r->n_queued < REMOTE_QUEUE);
    r->queue[r->n_queued++] = (remote_job){.segment = s, .cancel = cancel};
    return KVANT_OK;
}

static inline kv_status remote_upload(kv_range to, const void *from) {
    remote *r = to.buffer->device->impl;
    assert_true(to.at + to.bytes <= to.buffer->bytes);
    if (r->n_queued == REMOTE_QUEUE) remote_sync(&r->device);
    void *bytes = kv_alloc(1, to.bytes);
    if (!bytes) return KVANT_NO_MEMORY;
    memcpy(bytes, from, to.bytes);
    r->queue[r->n_queued++] = (remote_job){.to = to, .bytes = bytes};
    r->uploaded += (int64_t)to.bytes;
    return KVANT_OK;
}

static inline kv_status remote_download(void *to, kv_range from) {
    remote *r = from.buffer->device->impl;
    assert_true(from.at + from.bytes <= from.buffer->bytes);
    KV_TRY(remote_sync(&r->device));
    memcpy(to, (const uint8_t *)from.buffer->handle + from.at, from.bytes);
    r->downloaded += (int64_t)from.bytes;
    return KVANT_OK;
}

static inline void remote_release(kv_buffer *b) {
    remote *r = b->device->impl;
    for (int32_t i = 0; i < r->n_queued; i++)
        assert_null(r->queue[i].segment); /* a run has ended with sync */
    assert_int_equal(remote_sync(&r->device), KVANT_OK);
    for (int32_t i = 0; i < r->n_buffers; i++)
        if (r->buffers[i] == b) r->buffers[i] = r->buffers[--r->n_buffers];
    kv_free(b->handle);
    *b = (kv_buffer){0};
}

/* ---- the rest ---- */

static inline bool remote_supports(const kv_device *d, const kv_node *n) {
    const remote *r = d->impl;
    for (int i = 0; i < REMOTE_OPS; i++)
        if (r->refuses[i] == n->op) return false;
    return true;
}

static inline kv_status remote_prepare(kv_device *d, kv_segment *s) {
    (void)d;
    return kv_segment_check_memory(s);
}

/* Tiles, so that what is uploaded is packed. */
static inline const kv_layout *remote_layout(const kv_device *d, const kv_dtype *t) {
    (void)d, (void)t;
    return &kv_layout_tile16x4;
}

static inline const char *remote_kernel_name(const kv_device *d, const kv_node *n) {
    (void)d, (void)n;
    return "reference";
}

static inline void remote_destroy(kv_device *d) { (void)d; }

/* `r` must stay where it is. */
static inline void remote_open(remote *r, const char *name) {
    static const kv_device_kind kind = {.name = "far"};
    *r = (remote){.device = {.kind = &kind,
                             .impl = r,
                             .alloc = remote_alloc,
                             .release = remote_release,
                             .upload = remote_upload,
                             .download = remote_download,
                             .weight_layout = remote_layout,
                             .key_layout = remote_layout,
                             .value_layout = remote_layout,
                             .supports = remote_supports,
                             .prepare = remote_prepare,
                             .submit = remote_submit,
                             .sync = remote_sync,
                             .kernel_name = remote_kernel_name,
                             .destroy = remote_destroy}};
    snprintf(r->device.name, sizeof r->device.name, "%s", name);
}

static inline void remote_close(const remote *r) {
    assert_int_equal(r->n_buffers, 0);
    assert_int_equal(r->n_queued, 0);
}
