/* plan.c: the life of a plan: place, stage, bind scratch, prepare, run. */
#include "sched/plan.h"

#include "sched/place.h"
#include "sched/scratch.h"
#include "sched/stage.h"

#include <stdio.h>

/* A segment and the copies in front of it. */
typedef struct step {
    kv_segment segment;
    const kv_crossing *crossings;
    int32_t n_crossings;
} step;

struct kv_plan {
    kv_graph graph; /* owns nodes, tensors, parameters */
    kv_placement placement;
    kv_buffer *work; /* of each device, shared by its segments */
    step *steps;
    int32_t n_steps;
    int32_t *stage_of; /* of each node */
    void *staging;     /* for copies that go through the host; NULL: none */
};

/* ---- building ---- */

/* The copies that nodes before `end` are the first to read, from *next on. */
static void take_crossings(const kv_plan *p, step *s, int32_t end, size_t *next) {
    const kv_placement *places = &p->placement;
    s->crossings = places->crossings.at + *next;
    for (; *next < places->crossings.count && places->crossings.at[*next].reader < end; ++*next)
        s->n_crossings++;
}

/* One step for each run of nodes on the same device. */
static kv_status cut_steps(kv_plan *p) {
    kv_graph *g = &p->graph;
    int32_t n = (int32_t)g->nodes.count, begin = 0;
    size_t next = 0;
    p->steps = kv_arena_alloc(&g->arena, (size_t)n, sizeof *p->steps);
    if (!p->steps) return KVANT_NO_MEMORY;
    for (int32_t i = 1; i <= n; i++) {
        if (i < n && g->nodes.at[i]->device == g->nodes.at[begin]->device) continue;
        step *s = &p->steps[p->n_steps++];
        s->segment = (kv_segment){.device = g->nodes.at[begin]->device,
                                  .nodes = g->nodes.at + begin,
                                  .n_nodes = i - begin,
                                  .arena = &g->arena};
        take_crossings(p, s, i, &next);
        KV_TRY(kv_stage_ends(&s->segment, p->stage_of + begin));
        begin = i;
    }
    return KVANT_OK;
}

/* Workspace of device i: as much as the segment that needs most. */
static kv_status allocate_work(kv_plan *p, int32_t i) {
    kv_device *d = p->placement.scratch[i].device;
    size_t bytes = 0;
    for (int32_t k = 0; k < p->n_steps; k++)
        if (p->steps[k].segment.device == d && p->steps[k].segment.work_bytes > bytes)
            bytes = p->steps[k].segment.work_bytes;
    if (bytes) KV_TRY(d->alloc(d, &p->work[i], bytes));
    for (int32_t k = 0; k < p->n_steps; k++)
        if (p->steps[k].segment.device == d) p->steps[k].segment.work = p->work[i];
    return KVANT_OK;
}

static kv_status prepare(kv_plan *p) {
    int32_t n_devices = p->placement.n_devices;
    p->work = kv_arena_alloc(&p->graph.arena, (size_t)n_devices, sizeof *p->work);
    if (!p->work) return KVANT_NO_MEMORY;
    for (int32_t i = 0; i < p->n_steps; i++) {
        kv_segment *s = &p->steps[i].segment;
        KV_TRY(s->device->prepare(s->device, s));
    }
    for (int32_t i = 0; i < n_devices; i++) KV_TRY(allocate_work(p, i));
    for (int32_t i = 0; i < p->n_steps; i++) {
        kv_segment *s = &p->steps[i].segment;
        if (s->device->bind) KV_TRY(s->device->bind(s->device, s));
    }
    return KVANT_OK;
}

static kv_status allocate_staging(kv_plan *p) {
    size_t most = 0;
    for (size_t i = 0; i < p->placement.crossings.count; i++) {
        const kv_crossing *c = &p->placement.crossings.at[i];
        size_t bytes = kv_device_staging(kv_tensor_range(c->to), kv_tensor_range(c->from));
        if (bytes > most) most = bytes;
    }
    if (most) p->staging = kv_alloc(1, most);
    return most && !p->staging ? KVANT_NO_MEMORY : KVANT_OK;
}

static kv_status build(kv_plan *p, kv_device *const *devices, int32_t n_devices) {
    kv_graph *g = &p->graph;
    KV_TRY(g->status);
    if (!g->nodes.count) return kv_fail(KVANT_INVALID, "plan: the graph is empty");
    KV_TRY(kv_place(&p->placement, g, devices, n_devices));
    p->stage_of = kv_arena_alloc(&g->arena, g->nodes.count, sizeof *p->stage_of);
    if (!p->stage_of) return KVANT_NO_MEMORY;
    KV_TRY(kv_stage_assign(g, p->stage_of));
    KV_TRY(kv_scratch_bind(g, &p->placement, p->stage_of));
    KV_TRY(cut_steps(p));
    KV_TRY(prepare(p));
    return allocate_staging(p);
}

kv_status kv_plan_create(kv_plan **out, kv_graph *g, kv_device *const *devices, int32_t n_devices) {
    kv_plan *p = kv_alloc(1, sizeof *p);
    if (!p) {
        kv_graph_clear(g);
        return KVANT_NO_MEMORY;
    }
    p->graph = *g;
    kv_graph_init(g);
    kv_status status = build(p, devices, n_devices);
    if (status)
        kv_plan_destroy(p);
    else
        *out = p;
    return status;
}

void kv_plan_destroy(kv_plan *p) {
    if (!p) return;
    for (int32_t i = 0; p->work && i < p->placement.n_devices; i++)
        if (p->work[i].bytes) p->work[i].device->release(&p->work[i]);
    if (p->placement.scratch) kv_scratch_release(&p->placement);
    kv_placement_clear(&p->placement);
    kv_graph_clear(&p->graph);
    kv_free(p->staging);
    kv_free(p);
}

/* ---- running ---- */

static kv_status run_step(const kv_plan *p, const step *s, atomic_bool *cancel) {
    kv_device *d = s->segment.device;
    if (atomic_load(cancel)) return kv_fail(KVANT_CANCELLED, "cancelled");
    for (int32_t i = 0; i < s->n_crossings; i++) {
        const kv_crossing *c = &s->crossings[i];
        KV_TRY(kv_device_copy(kv_tensor_range(c->to), kv_tensor_range(c->from), p->staging));
    }
    return d->submit(d, &s->segment, cancel);
}

/* Waits for every device; the failure that came first is the one to tell. */
static kv_status wait_for_all(const kv_plan *p, kv_status status) {
    char message[256];
    snprintf(message, sizeof message, "%s", kv_last_error());
    kv_status late = KVANT_OK;
    for (int32_t i = 0; i < p->placement.n_devices; i++) {
        kv_status s = kv_device_sync(p->placement.scratch[i].device);
        if (!late) late = s;
    }
    if (status && late) return kv_fail(status, "%s", message);
    return status ? status : late;
}

kv_status kv_plan_run(kv_plan *p, atomic_bool *cancel) {
    kv_status status = KVANT_OK;
    for (int32_t i = 0; !status && i < p->n_steps; i++) status = run_step(p, &p->steps[i], cancel);
    return wait_for_all(p, status);
}

/* ---- figures ---- */

static size_t bytes_on(const kv_plan *p, int32_t i) {
    return p->placement.scratch[i].bytes + p->work[i].bytes;
}

size_t kv_plan_scratch_bytes(const kv_plan *p) {
    size_t bytes = 0;
    for (int32_t i = 0; i < p->placement.n_devices; i++) bytes += bytes_on(p, i);
    return bytes;
}

size_t kv_plan_device_bytes(const kv_plan *p, const kv_device *d) {
    size_t bytes = 0;
    for (int32_t i = 0; i < p->placement.n_devices; i++)
        if (p->placement.scratch[i].device == d) bytes += bytes_on(p, i);
    return bytes;
}

size_t kv_plan_crossing_bytes(const kv_plan *p) {
    size_t bytes = 0;
    for (size_t i = 0; i < p->placement.crossings.count; i++)
        bytes += kv_tensor_bytes(p->placement.crossings.at[i].to);
    return bytes;
}

static kv_plan_line copy_line(const kv_plan *p, const kv_crossing *c) {
    const kv_node *reader = p->graph.nodes.at[c->reader];
    return (kv_plan_line){.label = reader->label,
                          .op = "copy",
                          .device = reader->device->name,
                          .kernel = c->text,
                          .stage = p->stage_of[kv_segment_begin(&p->graph, c->reader)],
                          .node = reader,
                          .from = c->from->buffer->device->name,
                          .copy = c->to,
                          .bytes = kv_tensor_bytes(c->to)};
}

static kv_plan_line node_line(const kv_plan *p, int32_t i) {
    const kv_node *n = p->graph.nodes.at[i];
    return (kv_plan_line){.label = n->label,
                          .op = n->op->name,
                          .device = n->device->name,
                          .kernel = n->device->kernel_name(n->device, n),
                          .stage = p->stage_of[i],
                          .node = n};
}

void kv_plan_dump(const kv_plan *p, void (*line)(void *user, const kv_plan_line *line), void *user) {
    int32_t node = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        const step *s = &p->steps[i];
        for (int32_t k = 0; k < s->n_crossings; k++) {
            kv_plan_line l = copy_line(p, &s->crossings[k]);
            line(user, &l);
        }
        for (int32_t k = 0; k < s->segment.n_nodes; k++) {
            kv_plan_line l = node_line(p, node++);
            line(user, &l);
        }
    }
}
