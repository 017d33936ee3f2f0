/* plan.c: the life of a plan: place, stage, bind scratch, prepare, run. */
#include "sched/plan.h"

#include "sched/place.h"
#include "sched/scratch.h"
#include "sched/stage.h"

struct kv_plan {
    kv_graph graph; /* owns nodes, tensors, parameters */
    kv_buffer scratch;
    kv_segment *segments;
    int32_t n_segments;
    int32_t *stage_of; /* of each node */
};

/* One segment per run of nodes on the same device. */
static kv_status cut_segments(kv_plan *p) {
    kv_graph *g = &p->graph;
    int32_t n = (int32_t)g->nodes.count, begin = 0;
    p->segments = kv_arena_alloc(&g->arena, (size_t)n, sizeof *p->segments);
    if (!p->segments) return KVANT_NO_MEMORY;
    for (int32_t i = 1; i <= n; i++) {
        if (i < n && g->nodes.at[i]->device == g->nodes.at[begin]->device) continue;
        kv_segment *s = &p->segments[p->n_segments++];
        *s = (kv_segment){.device = g->nodes.at[begin]->device,
                          .nodes = g->nodes.at + begin,
                          .n_nodes = i - begin,
                          .arena = &g->arena};
        KV_TRY(kv_stage_ends(s, p->stage_of + begin));
        KV_TRY(s->device->prepare(s->device, s));
        begin = i;
    }
    return KVANT_OK;
}

static kv_status build(kv_plan *p, kv_device *const *devices, int32_t n_devices) {
    kv_graph *g = &p->graph;
    KV_TRY(g->status);
    if (!g->nodes.count) return kv_fail(KVANT_INVALID, "plan: the graph is empty");
    KV_TRY(kv_place(g, devices, n_devices));
    p->stage_of = kv_arena_alloc(&g->arena, g->nodes.count, sizeof *p->stage_of);
    if (!p->stage_of) return KVANT_NO_MEMORY;
    KV_TRY(kv_stage_assign(g, p->stage_of));
    KV_TRY(kv_scratch_bind(g, p->stage_of, &p->scratch));
    return cut_segments(p);
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
    for (int32_t i = 0; i < p->n_segments; i++)
        if (p->segments[i].work.device) p->segments[i].device->release(&p->segments[i].work);
    if (p->scratch.device) p->scratch.device->release(&p->scratch);
    kv_graph_clear(&p->graph);
    kv_free(p);
}

kv_status kv_plan_run(kv_plan *p, atomic_bool *cancel) {
    for (int32_t i = 0; i < p->n_segments; i++) {
        kv_segment *s = &p->segments[i];
        KV_TRY(s->device->run(s->device, s, cancel));
    }
    return KVANT_OK;
}

size_t kv_plan_scratch_bytes(const kv_plan *p) {
    size_t bytes = p->scratch.bytes;
    for (int32_t i = 0; i < p->n_segments; i++) bytes += p->segments[i].work.bytes;
    return bytes;
}

void kv_plan_dump(const kv_plan *p, void (*line)(void *user, const kv_plan_line *line), void *user) {
    for (size_t i = 0; i < p->graph.nodes.count; i++) {
        const kv_node *n = p->graph.nodes.at[i];
        kv_plan_line l = {.label = n->label,
                          .op = n->op->name,
                          .device = n->device->name,
                          .kernel = n->device->kernel_name(n->device, n),
                          .stage = p->stage_of[i],
                          .node = n};
        line(user, &l);
    }
}
