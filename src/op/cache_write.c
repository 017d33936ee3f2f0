/* cache_write: store.k[cells[i]] = encode(rotate(k[i])), store.v[cells[i]] = encode(v[i]). */
#include "op/cache_write.h"

static kv_status check(const kv_node *n) {
    const kv_cache_write_params *p = n->params;
    const kv_store *s = p->store;
    KV_TRY(kv_check_plain(n->in[0], "k"));
    KV_TRY(kv_check_plain(n->in[1], "v"));
    KV_TRY(kv_check_shape(n->in[0], "k", -1, s->k.cols));
    KV_TRY(kv_check_shape(n->in[1], "v", n->in[0]->rows, s->v.cols));
    if (p->rope->n_rot > s->k_dim)
        return kv_fail(KVANT_INVALID, "%d rotary dimensions, more than the head's %d", p->rope->n_rot,
                       s->k_dim);
    if (p->rope->n_rot) KV_TRY(kv_check_shape(n->in[2], "rope table", -1, p->rope->n_rot));
    return KVANT_OK;
}

/* Codes a row of floats into cell `cell` of a store's tensor. */
static kv_status write_cell(const kv_tensor *t, int32_t cell, const float *src) {
    void *plain = kv_alloc(1, kv_dtype_bytes(t->dtype, t->cols));
    if (!plain) return KVANT_NO_MEMORY;
    t->dtype->encode(plain, src, t->cols);
    kv_layout_pack(t->layout, t->dtype, t->cols, kv_tensor_data(t), plain, cell, 1);
    kv_free(plain);
    return KVANT_OK;
}

static kv_status write_token(const kv_node *n, int32_t i, float *row) {
    const kv_cache_write_params *p = n->params;
    const kv_store *s = p->store;
    KV_TRY(kv_read_row(row, n->in[0], i));
    for (int32_t h = 0; p->rope->n_rot && h < s->n_kv_heads; h++)
        kv_rope_rotate(row + h * s->k_dim, p->rope, kv_tensor_row(n->in[2], i));
    KV_TRY(write_cell(&s->k, p->batch->cells[i], row));
    KV_TRY(kv_read_row(row, n->in[1], i));
    return write_cell(&s->v, p->batch->cells[i], row);
}

static kv_status reference(const kv_node *n) {
    const kv_cache_write_params *p = n->params;
    int64_t cols = p->store->k.cols > p->store->v.cols ? p->store->k.cols : p->store->v.cols;
    float *row = kv_alloc(cols, sizeof *row);
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
