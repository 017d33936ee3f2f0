/* cpu_device.c: memory, preparation and the run loop of the CPU device. A whole segment is one run of the
 * pool: threads take items of the current stage until none is left and meet at a barrier. The caller is one
 * of the threads, so submit returns when the work is done. Several CPU devices are parts of one machine, each
 * with threads and memory of its own. */
#include "device/cpu/cpu_device.h"

#include "base/threads.h"
#include "device/cpu/cpu_op.h"

#include <stdio.h>
#include <string.h>

typedef struct cpu_device {
    kv_device device;
    kv_pool *pool;
    unsigned flags;
} cpu_device;

static const kv_cpu_op *const drivers[] = {
#define KV_CPU_OP(name) &kv_cpu_##name,
#include "device/cpu/cpu_ops.inc"
#undef KV_CPU_OP
};

enum { N_CPU_DEVICES = 8 }; /* that one machine may be divided into */

static cpu_device *self(const kv_device *d) { return d->impl; }

/* ---- memory ---- */

static kv_status cpu_alloc(kv_device *d, kv_buffer *out, size_t bytes) {
    void *p = kv_pages_map(bytes ? bytes : 1);
    if (!p) return KVANT_NO_MEMORY;
    *out = (kv_buffer){.device = d, .bytes = bytes, .host = p, .handle = p};
    return KVANT_OK;
}

static void cpu_release(kv_buffer *b) {
    if (b->handle) kv_pages_unmap(b->handle, b->bytes ? b->bytes : 1);
    *b = (kv_buffer){0};
}

static kv_status cpu_borrow(kv_device *d, kv_buffer *out, const void *host, size_t bytes) {
    *out = (kv_buffer){.device = d, .bytes = bytes, .host = (uint8_t *)host};
    return KVANT_OK;
}

static kv_status cpu_upload(kv_range to, const void *from) {
    memcpy(to.buffer->host + to.at, from, to.bytes);
    return KVANT_OK;
}

static kv_status cpu_download(void *to, kv_range from) {
    memcpy(to, from.buffer->host + from.at, from.bytes);
    return KVANT_OK;
}

static kv_status cpu_copy(kv_range to, kv_range from) {
    memcpy(to.buffer->host + to.at, from.buffer->host + from.at, from.bytes);
    return KVANT_OK;
}

/* ---- choice of kernels ---- */

static const kv_layout *cpu_weight_layout(const kv_device *d, const kv_dtype *weights) {
    for (int32_t i = 0; i < kv_kernel_count(); i++) {
        const kv_kernel *k = kv_kernel_at(i);
        if (k->role == KV_ROLE_matmul && k->a == weights && (k->cpu & self(d)->flags) == k->cpu)
            return k->layout;
    }
    return &kv_layout_rows;
}

/* Queries in 8 bits meet keys as activations meet weights. */
static const kv_layout *cpu_key_layout(const kv_device *d, const kv_dtype *keys) {
    const kv_layout *tiled = &kv_layout_tile16x4;
    bool fits = kv_kernel_pick(KV_ROLE_matmul, keys, &kv_dtype_a8, tiled, self(d)->flags);
    return fits ? tiled : &kv_layout_rows;
}

static const kv_layout *cpu_value_layout(const kv_device *d, const kv_dtype *values) {
    const kv_layout *quads = &kv_layout_quad16;
    bool fits = kv_kernel_pick(KV_ROLE_accumulate, values, &kv_dtype_a8, quads, self(d)->flags);
    return fits ? quads : &kv_layout_rows;
}

static const kv_cpu_op *find_driver(const kv_node *n, unsigned flags) {
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++)
        if (drivers[i]->op == n->op && drivers[i]->accepts(n, flags)) return drivers[i];
    return NULL;
}

/* An op that can be expanded is better run in parts than by its reference. */
static bool cpu_supports(const kv_device *d, const kv_node *n) {
    return find_driver(n, self(d)->flags) || !n->op->expand;
}

static bool reference_accepts(const kv_node *n, unsigned cpu) { return (void)n, (void)cpu, true; }

static kv_status reference_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    (void)cpu;
    kv_cpu_impl *impl = kv_arena_alloc(arena, 1, sizeof *impl);
    if (!impl) return KVANT_NO_MEMORY;
    impl->kernel = "reference";
    n->impl = impl;
    return KVANT_OK;
}

static int64_t reference_items(const kv_node *n, int32_t phase) { return (void)n, (void)phase, 1; }

static kv_status reference_run(const kv_node *n, int32_t phase, int64_t item, void *work) {
    (void)phase, (void)item, (void)work;
    return n->op->reference(n);
}

static const kv_cpu_op reference_driver = {.n_phases = 1,
                                           .accepts = reference_accepts,
                                           .prepare = reference_prepare,
                                           .n_items = reference_items,
                                           .run = reference_run};

kv_encode_fn *kv_cpu_encoder(const kv_dtype *d, unsigned cpu) {
    const kv_kernel *k = kv_kernel_pick(KV_ROLE_encode, d, NULL, NULL, cpu);
    return k ? k->encode : d->encode;
}

kv_encode_fn *kv_cpu_close_encoder(const kv_dtype *d, unsigned cpu) {
    const kv_kernel *k = kv_kernel_pick(KV_ROLE_encode_close, d, NULL, NULL, cpu);
    if (!d->encode_close) return kv_cpu_encoder(d, cpu);
    return k ? k->encode_close : d->encode_close;
}

kv_decode_fn *kv_cpu_decoder(const kv_dtype *d, unsigned cpu) {
    const kv_kernel *k = kv_kernel_pick(KV_ROLE_decode, d, NULL, NULL, cpu);
    return k ? k->decode : d->decode;
}

static const char *cpu_kernel_name(const kv_device *d, const kv_node *n) {
    (void)d;
    return ((const kv_cpu_impl *)n->impl)->kernel;
}

/* ---- preparing and running a segment ---- */

static kv_cpu_impl *impl_of(const kv_node *n) { return n->impl; }

/* Resolves every node; *work is the largest workspace of a thread, *shared the largest sum within a stage. */
static kv_status prepare_nodes(cpu_device *c, kv_segment *s, size_t *work, size_t *shared) {
    int32_t begin = 0;
    for (int32_t stage = 0; stage < s->n_stages; stage++) {
        size_t sum = 0;
        for (int32_t i = begin; i < s->stage_ends[stage]; i++) {
            const kv_cpu_op *driver = find_driver(s->nodes[i], c->flags);
            if (!driver) driver = &reference_driver;
            KV_TRY(driver->prepare(s->nodes[i], c->flags, s->arena));
            kv_cpu_impl *impl = impl_of(s->nodes[i]);
            impl->driver = driver;
            sum += kv_round_up(impl->shared_bytes, 64);
            if (impl->work_bytes > *work) *work = kv_round_up(impl->work_bytes, 64);
        }
        if (sum > *shared) *shared = sum;
        begin = s->stage_ends[stage];
    }
    return KVANT_OK;
}

static void bind_shared(kv_segment *s, size_t offset) {
    int32_t begin = 0;
    for (int32_t stage = 0; stage < s->n_stages; stage++) {
        uint8_t *at = s->work.host + offset;
        for (int32_t i = begin; i < s->stage_ends[stage]; i++) {
            impl_of(s->nodes[i])->shared = at;
            at += kv_round_up(impl_of(s->nodes[i])->shared_bytes, 64);
        }
        begin = s->stage_ends[stage];
    }
}

static kv_status cpu_prepare(kv_device *d, kv_segment *s) {
    size_t work = 0, shared = 0;
    KV_TRY(kv_segment_check_memory(s));
    KV_TRY(prepare_nodes(self(d), s, &work, &shared));
    s->thread_bytes = work;
    s->work_bytes = (size_t)d->n_threads * work + shared;
    return KVANT_OK;
}

static kv_status cpu_bind(kv_device *d, kv_segment *s) {
    bind_shared(s, (size_t)d->n_threads * s->thread_bytes);
    return KVANT_OK;
}

typedef struct job {
    const kv_segment *segment;
    kv_pool *pool;
    atomic_bool *cancel;
    atomic_bool failed;
    _Atomic kv_status status; /* of the item that failed first, with its thread's message */
    char message[256];
    /* The last to run. Thread 0 may set it for a stage that others have yet to begin: they run it too, and
     * all leave behind the same barrier. */
    atomic_int last_stage;
} job;

static void note_failure(job *j, kv_status status) {
    if (atomic_exchange(&j->failed, true)) return;
    snprintf(j->message, sizeof j->message, "%s", kv_last_error());
    j->status = status;
}

/* Items of nodes [begin, end) in this phase, taken until there are none. */
static void run_items(job *j, int32_t begin, int32_t end, int32_t phase, void *work) {
    const kv_segment *s = j->segment;
    int64_t item = kv_pool_take(j->pool), before = 0;
    for (int32_t i = begin; i < end; i++) {
        const kv_cpu_impl *impl = impl_of(s->nodes[i]);
        int64_t n = phase < impl->driver->n_phases ? impl->driver->n_items(s->nodes[i], phase) : 0;
        for (; item < before + n; item = kv_pool_take(j->pool)) {
            kv_status status = impl->driver->run(s->nodes[i], phase, item - before, work);
            if (status) note_failure(j, status);
        }
        before += n;
    }
}

static void run_thread(void *arg, int32_t thread) {
    job *j = arg;
    const kv_segment *s = j->segment;
    void *work = s->work.host + (size_t)thread * s->thread_bytes;
    int32_t begin = 0;
    for (int32_t stage = 0; stage <= atomic_load(&j->last_stage); stage++) {
        int32_t end = s->stage_ends[stage], phases = 1;
        for (int32_t i = begin; i < end; i++)
            if (impl_of(s->nodes[i])->driver->n_phases > phases)
                phases = impl_of(s->nodes[i])->driver->n_phases;
        for (int32_t phase = 0; phase < phases; phase++) {
            run_items(j, begin, end, phase, work);
            bool stop = thread == 0 && phase + 1 == phases && (j->status || atomic_load(j->cancel));
            if (stop) atomic_store(&j->last_stage, stage);
            kv_pool_barrier(j->pool);
        }
        begin = end;
    }
}

static kv_status cpu_submit(kv_device *d, const kv_segment *s, atomic_bool *cancel) {
    job j = {.segment = s, .pool = self(d)->pool, .cancel = cancel, .last_stage = s->n_stages - 1};
    kv_pool_run(self(d)->pool, run_thread, &j);
    if (j.status) return kv_fail(j.status, "%s", j.message);
    return atomic_load(cancel) ? kv_fail(KVANT_CANCELLED, "cancelled") : KVANT_OK;
}

/* ---- life ---- */

static void cpu_destroy(kv_device *d) {
    kv_pool_destroy(self(d)->pool);
    kv_free(self(d));
}

static kv_status cpu_open(kv_device **out, int32_t index, const kv_device_options *o) {
    cpu_device *c = kv_alloc(1, sizeof *c);
    if (!c) return KVANT_NO_MEMORY;
    kv_status status = kv_pool_create(&c->pool, o->n_threads);
    if (status) {
        kv_free(c);
        return status;
    }
    c->flags = o->cpu;
    c->device = (kv_device){.kind = &kv_device_kind_cpu,
                            .impl = c,
                            .memory_bytes = kv_memory_of_machine(),
                            .n_threads = o->n_threads,
                            .kernels = kv_cpu_name(o->cpu),
                            .alloc = cpu_alloc,
                            .release = cpu_release,
                            .borrow = cpu_borrow,
                            .upload = cpu_upload,
                            .download = cpu_download,
                            .copy = cpu_copy,
                            .weight_layout = cpu_weight_layout,
                            .key_layout = cpu_key_layout,
                            .value_layout = cpu_value_layout,
                            .supports = cpu_supports,
                            .prepare = cpu_prepare,
                            .bind = cpu_bind,
                            .submit = cpu_submit,
                            .kernel_name = cpu_kernel_name,
                            .destroy = cpu_destroy};
    snprintf(c->device.name, sizeof c->device.name, "cpu:%d", index);
    *out = &c->device;
    return KVANT_OK;
}

kv_status kv_cpu_device_create(kv_device **out, int32_t index, int32_t n_threads, unsigned flags) {
    return cpu_open(out, index, &(kv_device_options){n_threads, flags});
}

static int32_t cpu_count(void) { return N_CPU_DEVICES; }

const kv_device_kind kv_device_kind_cpu = {
    .name = "cpu", .shares_memory = true, .count = cpu_count, .open = cpu_open};
