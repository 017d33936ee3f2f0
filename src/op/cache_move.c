/* cache_move: store.k[to[i]] = store.k[from[i]], store.v[to[i]] = store.v[from[i]], as they are coded. */
#include "op/cache_move.h"

static kv_status check(const kv_node *n) {
    const kv_cache_move_params *p = n->params;
    if (p->store && p->moves) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "a store and a list of cells are needed");
}

void kv_cell_copy(const kv_tensor *t, int32_t from, int32_t to, void *plain) {
    kv_layout_unpack(t->layout, t->dtype, t->cols, plain, kv_tensor_data(t), from, 1);
    kv_layout_pack(t->layout, t->dtype, t->cols, kv_tensor_data(t), plain, to, 1);
}

static kv_status copy_cells(const kv_tensor *t, const kv_cell_moves *m) {
    void *plain = kv_alloc(1, kv_dtype_bytes(t->dtype, t->cols));
    if (!plain) return KVANT_NO_MEMORY;
    for (int32_t i = 0; i < m->n; i++) kv_cell_copy(t, m->from[i], m->to[i], plain);
    kv_free(plain);
    return KVANT_OK;
}

static kv_status reference(const kv_node *n) {
    const kv_cache_move_params *p = n->params;
    KV_TRY(copy_cells(&p->store->k, p->moves));
    return copy_cells(&p->store->v, p->moves);
}

const kv_op kv_op_cache_move = {.name = "cache_move", .check = check, .reference = reference};

void kv_cache_move(kv_graph *g, const kv_cache_move_params *p) {
    if (g->status) return;
    kv_node node = {
        .op = &kv_op_cache_move, .params = p, .writes = p->store, .home = p->store->k.buffer->device};
    kv_graph_add(g, &node, sizeof *p);
}
