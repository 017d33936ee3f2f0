/* graph.c: building a graph. */
#include "core/graph.h"

#include <string.h>

void kv_graph_init(kv_graph *g) { *g = (kv_graph){.label = ""}; }

void kv_graph_clear(kv_graph *g) {
    kv_vec_clear(&g->nodes);
    kv_vec_clear(&g->scratch);
    kv_arena_clear(&g->arena);
    kv_graph_init(g);
}

static void *fail(kv_graph *g, kv_status status) {
    g->status = status;
    return NULL;
}

kv_tensor *kv_graph_tensor(kv_graph *g, const kv_dtype *dtype, int64_t rows, int64_t cols) {
    if (g->status) return NULL;
    if (cols % dtype->block_elems)
        return fail(g, kv_fail(KVANT_INVALID, "%s: a result of %lld columns is not whole blocks of %s (%d)",
                               g->label, (long long)cols, dtype->name, dtype->block_elems));
    kv_tensor *t = kv_arena_alloc(&g->arena, 1, sizeof *t);
    if (!t || !kv_vec_push(&g->scratch, t)) return fail(g, KVANT_NO_MEMORY);
    *t = (kv_tensor){.dtype = dtype, .layout = &kv_layout_rows, .rows = rows, .cols = cols};
    return t;
}

kv_tensor *kv_graph_add(kv_graph *g, const kv_node *node, size_t params_bytes) {
    if (g->status) return NULL;
    kv_node *n = kv_arena_alloc(&g->arena, 1, sizeof *n);
    void *params = kv_arena_alloc(&g->arena, 1, params_bytes);
    if (!n || !params) return fail(g, KVANT_NO_MEMORY);
    memcpy(params, node->params, params_bytes);
    *n = *node;
    n->params = params;
    n->label = g->label;
    kv_status status = n->op->check(n);
    if (status) return fail(g, kv_fail_in(status, "%s (%s)", n->op->name, n->label));
    if (!kv_vec_push(&g->nodes, n)) return fail(g, KVANT_NO_MEMORY);
    return n->out;
}

static kv_status check_owner(const kv_segment *s, const kv_node *n, const kv_device *owner,
                             const char *what) {
    if (owner == s->device) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "%s: %s (%s) has its %s on %s", s->device->name, n->op->name, n->label,
                   what, owner ? owner->name : "no device");
}

static const kv_device *owner_of(const kv_tensor *t) { return t->buffer ? t->buffer->device : NULL; }

kv_status kv_segment_check_memory(const kv_segment *s) {
    for (int32_t i = 0; i < s->n_nodes; i++) {
        const kv_node *n = s->nodes[i];
        if (n->home) KV_TRY(check_owner(s, n, n->home, "store"));
        if (n->out) KV_TRY(check_owner(s, n, owner_of(n->out), "result"));
        for (int k = 0; k < KV_MAX_INPUTS; k++)
            if (n->in[k]) KV_TRY(check_owner(s, n, owner_of(n->in[k]), "input"));
    }
    return KVANT_OK;
}
