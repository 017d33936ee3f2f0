/* cache_write: store.k[cells[i]] = code(k[i], stored position), store.v[cells[i]] = code(v[i]): op/store.h.
 */
#include "op/cache_write.h"

static kv_status check(const kv_node *n) {
    const kv_cache_write_params *p = n->params;
    const kv_store *s = p->store;
    KV_TRY(kv_check_plain(n->in[0], "k"));
    KV_TRY(kv_check_plain(n->in[1], "v"));
    KV_TRY(kv_check_shape(n->in[0], "k", -1, (int64_t)s->n_kv_heads * s->k_head.dim));
    KV_TRY(kv_check_shape(n->in[1], "v", n->in[0]->rows, (int64_t)s->n_kv_heads * s->v_head.dim));
    if (p->rope->n_rot > s->k_head.dim)
        return kv_fail(KVANT_INVALID, "%d rotary dimensions, more than the head's %d", p->rope->n_rot,
                       s->k_head.dim);
    if (p->rope->n_rot) KV_TRY(kv_check_shape(n->in[2], "rope table", -1, p->rope->n_rot));
    return KVANT_OK;
}

static kv_status write_token(const kv_node *n, int32_t i, float *row) {
    const kv_cache_write_params *p = n->params;
    int32_t cell = p->batch->cells[i];
    KV_TRY(kv_read_row(row, n->in[0], i));
    KV_TRY(
        kv_store_write_key(p->store, cell, row, p->rope, p->rope->n_rot ? kv_tensor_row(n->in[2], i) : NULL));
    KV_TRY(kv_read_row(row, n->in[1], i));
    return kv_store_write_value(p->store, cell, row);
}

static kv_status reference(const kv_node *n) {
    const kv_cache_write_params *p = n->params;
    int64_t cols = n->in[0]->cols > n->in[1]->cols ? n->in[0]->cols : n->in[1]->cols;
    float *row = kv_alloc((size_t)cols, sizeof *row);
    kv_status status = row ? KVANT_OK : KVANT_NO_MEMORY;
    for (int32_t i = 0; !status && i < p->batch->n_tokens; i++) status = write_token(n, i, row);
    kv_free(row);
    return status;
}

const kv_op kv_op_cache_write = {.name = "cache_write", .check = check, .reference = reference};

void kv_cache_write(kv_graph *g, const kv_cache_write_params *p, kv_tensor *k, kv_tensor *v,
                    kv_tensor *table) {
    if (g->status || !k || !v) return;
    kv_node node = {.op = &kv_op_cache_write,
                    .in = {k, v, table},
                    .params = p,
                    .writes = p->store,
                    .home = p->store->k.buffer->device};
    kv_graph_add(g, &node, sizeof *p);
}
