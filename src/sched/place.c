/* place.c: placement and expansion. The wish of a node is its store's device, else that of its weights, else
 * that of its first input's producer, else the first device. A wish that cannot be met is expanded on the
 * same device first, and only then moved. */
#include "sched/place.h"

/* The device of the node, among those placed, that makes `t`. */
static kv_device *producer_device(const kv_graph *placed, const kv_tensor *t) {
    for (size_t i = placed->nodes.count; i-- > 0;) /* most uses are of recent tensors */
        if (placed->nodes.at[i]->out == t) return placed->nodes.at[i]->device;
    return NULL;
}

static kv_device *wish(const kv_graph *placed, const kv_node *n, kv_device *first) {
    if (n->home) return n->home;
    for (int i = 0; i < KV_MAX_INPUTS; i++)
        if (n->in[i] && n->in[i]->buffer) return n->in[i]->buffer->device;
    for (int i = 0; i < KV_MAX_INPUTS; i++) {
        kv_device *d = n->in[i] ? producer_device(placed, n->in[i]) : NULL;
        if (d) return d;
    }
    return first;
}

static kv_device *first_supporting(const kv_node *n, kv_device *const *devices, int32_t n_devices) {
    for (int32_t i = 0; i < n_devices; i++)
        if (devices[i]->supports(devices[i], n)) return devices[i];
    return NULL;
}

/* Appends `n`, or what it expands to, to the graph's (new) node list. */
static kv_status place_node(kv_graph *g, kv_node *n, kv_device *const *devices, int32_t n_devices) {
    kv_device *d = wish(g, n, devices[0]);
    if (!d->supports(d, n) && n->op->expand) {
        size_t begin = g->nodes.count;
        g->label = n->label;
        KV_TRY(n->op->expand(g, n));
        for (size_t i = begin; i < g->nodes.count; i++) {
            kv_node *part = g->nodes.at[i];
            part->device = d->supports(d, part) ? d : first_supporting(part, devices, n_devices);
            if (!part->device)
                return kv_fail(KVANT_UNSUPPORTED, "no device can run %s (%s)", part->op->name, n->label);
        }
        return KVANT_OK;
    }
    n->device = d->supports(d, n) ? d : first_supporting(n, devices, n_devices);
    if (!n->device) return kv_fail(KVANT_UNSUPPORTED, "no device can run %s (%s)", n->op->name, n->label);
    return kv_vec_push(&g->nodes, n) ? KVANT_OK : KVANT_NO_MEMORY;
}

/* The node runs where what it touches lies: `owner` owns its `what`. */
static kv_status check_reach(const kv_node *n, const kv_device *owner, const char *what) {
    if (!owner || owner == n->device) return KVANT_OK;
    return kv_fail(KVANT_UNSUPPORTED, "%s (%s) is on %s, its %s on %s: a graph on two devices", n->op->name,
                   n->label, n->device->name, what, owner->name);
}

static kv_status check_crossings(const kv_graph *g) {
    for (size_t i = 0; i < g->nodes.count; i++) {
        const kv_node *n = g->nodes.at[i];
        KV_TRY(check_reach(n, g->nodes.at[0]->device, "graph"));
        KV_TRY(check_reach(n, n->home, "store"));
        for (int k = 0; k < KV_MAX_INPUTS; k++)
            if (n->in[k] && n->in[k]->buffer) KV_TRY(check_reach(n, n->in[k]->buffer->device, "input"));
    }
    return KVANT_OK;
}

kv_status kv_place(kv_graph *g, kv_device *const *devices, int32_t n_devices) {
    kv_node **nodes = g->nodes.at;
    size_t count = g->nodes.count;
    g->nodes.at = NULL;
    g->nodes.count = g->nodes.capacity = 0;
    kv_status status = KVANT_OK;
    for (size_t i = 0; !status && i < count; i++) status = place_node(g, nodes[i], devices, n_devices);
    kv_free(nodes);
    return status ? status : check_crossings(g);
}
