/* place.c: placement, expansion, crossings. The wish of a node is its store's device, else that of its
 * weights, else that of its first input, else the first device. A wish that cannot be met is expanded on the
 * same device first, and only then moved. Nodes without inputs (sources: angles of rotary embedding) wait
 * until somebody reads them, and are made where that is: cheaper than to copy, and nothing crosses. */
#include "sched/place.h"

#include <stdio.h>

/* What a tensor is called on another device than its own. */
typedef struct mirror {
    const kv_tensor *of;
    kv_tensor *there;
} mirror;

typedef struct placing {
    kv_graph *g; /* its node list holds what an expansion appends */
    kv_placement *out;
    kv_device *const *devices;
    KV_VEC(kv_node *) placed;
    KV_VEC(kv_node *) sources;
    KV_VEC(mirror) mirrors;
} placing;

static kv_status place_node(placing *p, kv_node *n, kv_device *wish);

static bool is_source(const kv_node *n) {
    for (int i = 0; i < KV_MAX_INPUTS; i++)
        if (n->in[i]) return false;
    return n->out && !n->out->buffer && !n->home && !n->reads && !n->writes;
}

static kv_node *source_of(const placing *p, const kv_tensor *t) {
    for (size_t i = 0; i < p->sources.count; i++)
        if (p->sources.at[i]->out == t) return p->sources.at[i];
    return NULL;
}

/* ---- the wish ---- */

static kv_device *wish_of(const placing *p, const kv_node *n) {
    kv_device *follow = NULL;
    if (n->home) return n->home;
    for (int i = 0; i < KV_MAX_INPUTS; i++) {
        const kv_tensor *t = n->in[i];
        if (!t || !t->buffer) continue;
        if (!kv_is_scratch(p->out, t)) return t->buffer->device;
        if (!follow) follow = t->buffer->device;
    }
    return follow ? follow : p->devices[0];
}

static kv_device *first_supporting(const placing *p, const kv_node *n, kv_device *wish) {
    if (wish->supports(wish, n)) return wish;
    for (int32_t i = 0; i < p->out->n_devices; i++)
        if (p->devices[i]->supports(p->devices[i], n)) return p->devices[i];
    return NULL;
}

/* ---- inputs ---- */

static kv_status put_on(const placing *p, kv_tensor *t, const kv_device *d) {
    for (int32_t i = 0; i < p->out->n_devices; i++)
        if (p->devices[i] == d) {
            t->buffer = &p->out->scratch[i];
            return KVANT_OK;
        }
    return kv_fail(KVANT_INVALID, "%s is not among the devices of the plan", d->name);
}

/* Another tensor like `t`, on the device `d`, known as `t` there from now on. */
static kv_status add_mirror(placing *p, kv_tensor **out, const kv_tensor *t, const kv_device *d) {
    *out = kv_graph_tensor(p->g, t->dtype, t->rows, t->cols);
    if (!*out) return p->g->status;
    KV_TRY(put_on(p, *out, d));
    return kv_vec_push(&p->mirrors, ((mirror){t, *out})) ? KVANT_OK : KVANT_NO_MEMORY;
}

static kv_tensor *find_mirror(const placing *p, const kv_tensor *t, const kv_device *d) {
    for (size_t i = p->mirrors.count; i-- > 0;) /* most uses are of recent tensors */
        if (p->mirrors.at[i].of == t && p->mirrors.at[i].there->buffer->device == d)
            return p->mirrors.at[i].there;
    return NULL;
}

/* A second node for a source, on the device `d` that supports it. */
static kv_status repeat_source(placing *p, const kv_node *source, kv_device *d, kv_tensor **out) {
    kv_node *n = kv_arena_alloc(&p->g->arena, 1, sizeof *n);
    if (!n) return KVANT_NO_MEMORY;
    *n = *source;
    KV_TRY(add_mirror(p, out, source->out, d));
    n->out = *out;
    return place_node(p, n, d);
}

/* The reader is the node that is placed next. */
static kv_status add_crossing(placing *p, const kv_tensor *t, kv_device *d, kv_tensor **out) {
    char text[32];
    int n = snprintf(text, sizeof text, "from %s", t->buffer->device->name);
    KV_TRY(add_mirror(p, out, t, d));
    kv_crossing c = {.from = t,
                     .to = *out,
                     .reader = (int32_t)p->placed.count,
                     .text = kv_arena_strndup(&p->g->arena, text, (size_t)n)};
    if (!c.text) return KVANT_NO_MEMORY;
    return kv_vec_push(&p->out->crossings, c) ? KVANT_OK : KVANT_NO_MEMORY;
}

/* Sources that `n` reads and its device can make: now, in front of it. */
static kv_status make_sources(placing *p, const kv_node *n) {
    kv_tensor *there;
    for (int i = 0; i < KV_MAX_INPUTS; i++) {
        kv_node *source = n->in[i] ? source_of(p, n->in[i]) : NULL;
        if (!source) continue;
        if (!source->out->buffer)
            KV_TRY(place_node(p, source, n->device));
        else if (source->out->buffer->device != n->device && !find_mirror(p, source->out, n->device) &&
                 n->device->supports(n->device, source))
            KV_TRY(repeat_source(p, source, n->device, &there));
    }
    return KVANT_OK;
}

/* An input of `n` as a tensor on the node's device. */
static kv_status localize(placing *p, const kv_node *n, kv_tensor **in) {
    const kv_tensor *t = *in;
    if (!t->buffer)
        return kv_fail(KVANT_INVALID, "%s (%s) reads what no node before it makes", n->op->name, n->label);
    if (t->buffer->device == n->device) return KVANT_OK;
    kv_tensor *there = find_mirror(p, t, n->device);
    if (!there && !kv_is_scratch(p->out, t))
        return kv_fail(KVANT_UNSUPPORTED, "%s (%s) is on %s, its input on %s: weights are not copied",
                       n->op->name, n->label, n->device->name, t->buffer->device->name);
    if (!there) KV_TRY(add_crossing(p, t, n->device, &there));
    *in = there;
    return KVANT_OK;
}

/* ---- nodes ---- */

static kv_status put_node(placing *p, kv_node *n, kv_device *d) {
    n->device = d;
    if (n->home && n->home != d)
        return kv_fail(KVANT_UNSUPPORTED, "%s (%s) is on %s, its store on %s: stores are not copied",
                       n->op->name, n->label, d->name, n->home->name);
    KV_TRY(make_sources(p, n));
    for (int i = 0; i < KV_MAX_INPUTS; i++)
        if (n->in[i]) KV_TRY(localize(p, n, &n->in[i]));
    if (n->out && !n->out->buffer) KV_TRY(put_on(p, n->out, d));
    return kv_vec_push(&p->placed, n) ? KVANT_OK : KVANT_NO_MEMORY;
}

/* What `n` expands to, in place of it. */
static kv_status place_parts(placing *p, const kv_node *n, kv_device *d) {
    KV_VEC(kv_node *) parts = {0};
    p->g->nodes.count = 0;
    p->g->label = n->label;
    kv_status status = n->op->expand(p->g, n);
    for (size_t i = 0; !status && i < p->g->nodes.count; i++)
        if (!kv_vec_push(&parts, p->g->nodes.at[i])) status = KVANT_NO_MEMORY;
    for (size_t i = 0; !status && i < parts.count; i++) status = place_node(p, parts.at[i], d);
    kv_vec_clear(&parts);
    return status;
}

static kv_status place_node(placing *p, kv_node *n, kv_device *wish) {
    if (!wish->supports(wish, n) && n->op->expand) return place_parts(p, n, wish);
    kv_device *d = first_supporting(p, n, wish);
    if (!d) return kv_fail(KVANT_UNSUPPORTED, "no device can run %s (%s)", n->op->name, n->label);
    return put_node(p, n, d);
}

/* Sources that nobody has read by the end are results. */
static kv_status place_all(placing *p, kv_node **nodes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!is_source(nodes[i]))
            KV_TRY(place_node(p, nodes[i], wish_of(p, nodes[i])));
        else if (!kv_vec_push(&p->sources, nodes[i]))
            return KVANT_NO_MEMORY;
    }
    for (size_t i = 0; i < p->sources.count; i++)
        if (!p->sources.at[i]->out->buffer) KV_TRY(place_node(p, p->sources.at[i], p->devices[0]));
    return KVANT_OK;
}

kv_status kv_place(kv_placement *out, kv_graph *g, kv_device *const *devices, int32_t n_devices) {
    placing p = {.g = g, .out = out, .devices = devices};
    kv_node **nodes = g->nodes.at;
    size_t count = g->nodes.count;
    *out = (kv_placement){.n_devices = n_devices};
    out->scratch = kv_arena_alloc(&g->arena, (size_t)n_devices, sizeof *out->scratch);
    if (!out->scratch) return KVANT_NO_MEMORY;
    for (int32_t i = 0; i < n_devices; i++) out->scratch[i].device = devices[i];
    g->nodes.at = NULL;
    g->nodes.count = g->nodes.capacity = 0;
    kv_status status = place_all(&p, nodes, count);
    kv_vec_clear(&g->nodes);
    kv_free(nodes);
    kv_vec_clear(&p.sources);
    kv_vec_clear(&p.mirrors);
    g->nodes.at = p.placed.at;
    g->nodes.count = p.placed.count;
    g->nodes.capacity = p.placed.capacity;
    return status;
}

void kv_placement_clear(kv_placement *p) { kv_vec_clear(&p->crossings); }
