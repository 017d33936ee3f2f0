/* matmul_glu: the gated half of a feed-forward block in one op. Its meaning is its expansion. */
#include "op/glu.h"
#include "op/matmul.h"

static kv_status check(const kv_node *n) {
    const kv_tensor *x = n->in[0], *gate = n->in[1], *up = n->in[2];
    KV_TRY(kv_check_shape(x, "x", -1, -1));
    KV_TRY(kv_check_shape(gate, "gate weight", -1, x->cols));
    KV_TRY(kv_check_shape(up, "up weight", gate->rows, x->cols));
    return kv_check_shape(n->out, "out", x->rows, gate->rows);
}

/* matmul, matmul, glu into `out`, on tensors with memory of their own. */
static kv_status run_parts(const kv_node *n, kv_tensor *gate, kv_tensor *up) {
    kv_matmul_params plain = {0};
    kv_node parts[] = {
        {.op = &kv_op_matmul, .in = {n->in[0], n->in[1]}, .out = gate, .params = &plain},
        {.op = &kv_op_matmul, .in = {n->in[0], n->in[2]}, .out = up, .params = &plain},
        {.op = &kv_op_glu, .in = {gate, up}, .out = n->out, .params = n->params},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) KV_TRY(parts[i].op->reference(&parts[i]));
    return KVANT_OK;
}

static kv_status reference(const kv_node *n) {
    kv_tensor t = {.dtype = KV_FLOAT, .layout = n->out->layout, .rows = n->out->rows, .cols = n->out->cols};
    size_t bytes = kv_tensor_bytes(&t);
    kv_buffer buffer = {.bytes = 2 * bytes, .host = kv_alloc(2, bytes)};
    if (!buffer.host) return KVANT_NO_MEMORY;
    t.buffer = &buffer;
    kv_tensor up = t;
    up.offset = bytes;
    kv_status status = run_parts(n, &t, &up);
    kv_free(buffer.host);
    return status;
}

static kv_status expand(kv_graph *g, const kv_node *n) {
    kv_matmul_params plain = {0};
    kv_tensor *gate = kv_matmul(g, &plain, n->in[0], n->in[1], NULL, NULL, KV_FLOAT);
    kv_tensor *up = kv_matmul(g, &plain, n->in[0], n->in[2], NULL, NULL, KV_FLOAT);
    kv_node node = {.op = &kv_op_glu, .in = {gate, up}, .out = n->out, .params = n->params};
    if (!g->status) kv_graph_add(g, &node, sizeof(kv_glu_params));
    return g->status;
}

const kv_op kv_op_matmul_glu = {
    .name = "matmul_glu", .check = check, .reference = reference, .expand = expand};

kv_tensor *kv_matmul_glu(kv_graph *g, const kv_glu_params *p, kv_tensor *x, kv_tensor *w_gate,
                         kv_tensor *w_up, const kv_dtype *out) {
    if (g->status || !x || !w_gate || !w_up) return NULL;
    kv_node node = {.op = &kv_op_matmul_glu, .in = {x, w_gate, w_up}, .params = p};
    node.out = kv_graph_tensor(g, out, x->rows, w_gate->rows);
    return kv_graph_add(g, &node, sizeof *p);
}
