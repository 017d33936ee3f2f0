/* rope_table: rows of cosines and sines (op/rope.h), first for the tokens' stored positions, then for the
 * turns. */
#include "op/rope_table.h"

static kv_status check(const kv_node *n) {
    const kv_rope_table_params *p = n->params;
    KV_TRY(kv_check_plain(n->out, "out"));
    return kv_check_shape(n->out, "out", -1, p->rope->n_rot);
}

static kv_status reference(const kv_node *n) {
    const kv_rope_table_params *p = n->params;
    const kv_angles *a = p->angles;
    for (int32_t i = 0; i < a->n_tokens; i++)
        kv_rope_table_row(kv_tensor_row(n->out, i), p->rope, (double)a->stored[i], p->rope->magnitude);
    for (int32_t i = 0; i < a->n_turns; i++)
        kv_rope_table_row(kv_tensor_row(n->out, a->n_tokens + i), p->rope, (double)a->turns[i], 1);
    return KVANT_OK;
}

const kv_op kv_op_rope_table = {.name = "rope_table", .check = check, .reference = reference};

kv_tensor *kv_rope_table(kv_graph *g, const kv_rope_table_params *p, int64_t rows) {
    if (g->status) return NULL;
    kv_node node = {.op = &kv_op_rope_table, .params = p};
    node.out = kv_graph_tensor(g, KV_FLOAT, rows, p->rope->n_rot);
    return kv_graph_add(g, &node, sizeof *p);
}
