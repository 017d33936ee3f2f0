/* place.c: placement and expansion. The wish of a node is its store's device, else that of its weights, else
 * that of its first input's producer, else the first device. A wish that cannot be met is expanded on the
 * same device first, and only then moved. */
#include "sched/place.h"

static kv_device *wish(const kv_node *n, kv_device *first) {
    if (n->home) return n->home;
    for (int i = 0; i < KV_MAX_INPUTS; i++)
        if (n->in[i] && n->in[i]->buffer) return n->in[i]->buffer->device;
    return first;
}

static kv_device *first_supporting(const kv_node *n, kv_device *const *devices, int32_t n_devices) {
    for (int32_t i = 0; i < n_devices; i++)
        if (devices[i]->supports(devices[i], n)) return devices[i];
    return NULL;
}

/* Appends `n`, or what it expands to, to the graph's (new) node list. */
static kv_status place_node(kv_graph *g, kv_node *n, kv_device *const *devices, int32_t n_devices) {
    kv_device *d = wish(n, devices[0]);
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

/* Every tensor a node touches lies on its device. */
static kv_status check_crossings(const kv_graph *g) {
    for (size_t i = 0; i < g->nodes.count; i++) {
        const kv_node *n = g->nodes.at[i];
        if (n->device != g->nodes.at[0]->device)
            return kv_fail(KVANT_UNSUPPORTED,
                           "%s (%s) is on %s, the graph began on %s: a graph on two devices", n->op->name,
                           n->label, n->device->name, g->nodes.at[0]->device->name);
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
