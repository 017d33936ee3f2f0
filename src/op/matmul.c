/* matmul: the sums of a row in double, then bias, residual and soft cap. */
#include "op/matmul.h"

#include <math.h>

static kv_status check(const kv_node *n) {
    const kv_tensor *x = n->in[0], *w = n->in[1];
    KV_TRY(kv_check_shape(x, "x", -1, -1));
    KV_TRY(kv_check_shape(w, "weight", -1, x->cols));
    if (n->in[2]) KV_TRY(kv_check_shape(n->in[2], "bias", 1, w->rows));
    if (n->in[3]) KV_TRY(kv_check_shape(n->in[3], "residual", x->rows, w->rows));
    KV_TRY(kv_check_plain(n->out, "out"));
    return kv_check_shape(n->out, "out", x->rows, w->rows);
}

/* y += x . weight[r] for all rows r. */
static kv_status add_products(float *y, const float *x, const kv_tensor *weight, float *row) {
    for (int64_t r = 0; r < weight->rows; r++) {
        KV_TRY(kv_read_row(row, weight, r));
        double sum = 0;
        for (int64_t c = 0; c < weight->cols; c++) sum += (double)x[c] * (double)row[c];
        y[r] += (float)sum;
    }
    return KVANT_OK;
}

static kv_status add_row(float *y, const kv_tensor *t, int64_t row, float *scratch) {
    if (!t) return KVANT_OK;
    KV_TRY(kv_read_row(scratch, t, row));
    for (int64_t c = 0; c < t->cols; c++) y[c] += scratch[c];
    return KVANT_OK;
}

static kv_status reference_row(const kv_node *n, int64_t i, float *y, float *x, float *scratch) {
    const kv_matmul_params *p = n->params;
    for (int64_t r = 0; r < n->out->cols; r++) y[r] = 0;
    KV_TRY(kv_read_row(x, n->in[0], i));
    KV_TRY(add_products(y, x, n->in[1], scratch));
    KV_TRY(add_row(y, n->in[2], 0, scratch));
    KV_TRY(add_row(y, n->in[3], i, scratch));
    for (int64_t r = 0; p->softcap > 0 && r < n->out->cols; r++) y[r] = p->softcap * tanhf(y[r] / p->softcap);
    kv_write_row(n->out, i, y);
    return KVANT_OK;
}

static kv_status reference(const kv_node *n) {
    int64_t cols = n->in[0]->cols, rows = n->out->cols, most = cols > rows ? cols : rows;
    float *y = kv_alloc(rows + cols + most, sizeof *y);
    kv_status status = y ? KVANT_OK : KVANT_NO_MEMORY;
    for (int64_t i = 0; !status && i < n->out->rows; i++)
        status = reference_row(n, i, y, y + rows, y + rows + cols);
    kv_free(y);
    return status;
}

const kv_op kv_op_matmul = {.name = "matmul", .check = check, .reference = reference};

kv_tensor *kv_matmul(kv_graph *g, const kv_matmul_params *p, kv_tensor *x, kv_tensor *weight, kv_tensor *bias,
                     kv_tensor *residual, const kv_dtype *out) {
    if (g->status || !x || !weight) return NULL;
    kv_node node = {.op = &kv_op_matmul, .in = {x, weight, bias, residual}, .params = p};
    node.out = kv_graph_tensor(g, out, x->rows, weight->rows);
    return kv_graph_add(g, &node, sizeof *p);
}
