/* embed: out[i] = table[tokens[i]] * scale. */
#include "op/embed.h"

static kv_status check(const kv_node *n) {
    KV_TRY(kv_check_shape(n->in[0], "table", -1, -1));
    KV_TRY(kv_check_shape(n->out, "out", -1, n->in[0]->cols));
    return kv_check_plain(n->out, "out");
}

static kv_status reference(const kv_node *n) {
    const kv_embed_params *p = n->params;
    float *row = kv_alloc(n->out->cols, sizeof *row);
    kv_status status = row ? KVANT_OK : KVANT_NO_MEMORY;
    for (int64_t i = 0; !status && i < n->out->rows; i++) {
        status = kv_read_row(row, n->in[0], p->tokens[i]);
        for (int64_t c = 0; !status && c < n->out->cols; c++) row[c] *= p->scale;
        if (!status) kv_write_row(n->out, i, row);
    }
    kv_free(row);
    return status;
}

const kv_op kv_op_embed = {.name = "embed", .check = check, .reference = reference};

kv_tensor *kv_embed(kv_graph *g, const kv_embed_params *p, kv_tensor *table, int64_t n, const kv_dtype *out) {
    if (g->status || !table) return NULL;
    kv_node node = {.op = &kv_op_embed, .in = {table}, .params = p};
    node.out = kv_graph_tensor(g, out, n, table->cols);
    return kv_graph_add(g, &node, sizeof *p);
}
