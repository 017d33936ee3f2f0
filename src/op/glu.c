/* glu: out = act(gate) * up. */
#include "op/glu.h"

#include <math.h>

static kv_status check(const kv_node *n) {
    KV_TRY(kv_check_plain(n->in[0], "gate"));
    KV_TRY(kv_check_plain(n->in[1], "up"));
    KV_TRY(kv_check_shape(n->in[1], "up", n->in[0]->rows, n->in[0]->cols));
    return kv_check_shape(n->out, "out", n->in[0]->rows, n->in[0]->cols);
}

static double activate(kv_glu_act act, double x) {
    if (act == KV_GLU_SILU) return x / (1 + exp(-x));
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); /* sqrt(2 / pi) */
}

static kv_status reference(const kv_node *n) {
    const kv_glu_params *p = n->params;
    int64_t cols = n->out->cols;
    float *gate = kv_alloc(2 * cols, sizeof *gate), *up = gate + cols;
    kv_status status = gate ? KVANT_OK : KVANT_NO_MEMORY;
    for (int64_t r = 0; !status && r < n->out->rows; r++) {
        KV_TRY_DONE(kv_read_row(gate, n->in[0], r));
        KV_TRY_DONE(kv_read_row(up, n->in[1], r));
        for (int64_t c = 0; c < cols; c++)
            gate[c] = (float)(activate(p->act, (double)gate[c]) * (double)up[c]);
        kv_write_row(n->out, r, gate);
    }
done:
    kv_free(gate);
    return status;
}

const kv_op kv_op_glu = {.name = "glu", .check = check, .reference = reference};

kv_tensor *kv_glu(kv_graph *g, const kv_glu_params *p, kv_tensor *gate, kv_tensor *up, const kv_dtype *out) {
    if (g->status || !gate || !up) return NULL;
    kv_node node = {.op = &kv_op_glu, .in = {gate, up}, .params = p};
    node.out = kv_graph_tensor(g, out, gate->rows, gate->cols);
    return kv_graph_add(g, &node, sizeof *p);
}
