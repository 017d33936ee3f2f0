/* select: out[i] = x[rows[i]], byte for byte. */
#include "op/select.h"

#include <string.h>

static kv_status check(const kv_node *n) {
    KV_TRY(kv_check_plain(n->in[0], "x"));
    KV_TRY(kv_check_plain(n->out, "out"));
    if (n->in[0]->dtype != n->out->dtype) return kv_fail(KVANT_INVALID, "x and out differ in dtype");
    return kv_check_shape(n->out, "out", -1, n->in[0]->cols);
}

static kv_status reference(const kv_node *n) {
    const kv_select_params *p = n->params;
    size_t bytes = kv_dtype_bytes(n->out->dtype, n->out->cols);
    for (int64_t i = 0; i < n->out->rows; i++)
        memcpy(kv_tensor_row(n->out, i), kv_tensor_row(n->in[0], p->rows[i]), bytes);
    return KVANT_OK;
}

const kv_op kv_op_select = {.name = "select", .check = check, .reference = reference};

kv_tensor *kv_select(kv_graph *g, const kv_select_params *p, kv_tensor *x, int64_t n) {
    if (g->status || !x) return NULL;
    kv_node node = {.op = &kv_op_select, .in = {x}, .params = p};
    node.out = kv_graph_tensor(g, x->dtype, n, x->cols);
    return kv_graph_add(g, &node, sizeof *p);
}
