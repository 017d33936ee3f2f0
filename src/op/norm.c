/* norm: for each part of `width` numbers, x / sqrt(mean(x^2) + eps) * weight (+ residual). */
#include "op/norm.h"

#include <math.h>

static kv_status check(const kv_node *n) {
    const kv_norm_params *p = n->params;
    const kv_tensor *x = n->in[0];
    KV_TRY(kv_check_plain(x, "x"));
    if (p->width < 1 || x->cols % p->width)
        return kv_fail(KVANT_INVALID, "width %lld does not divide %lld columns", (long long)p->width,
                       (long long)x->cols);
    KV_TRY(kv_check_shape(n->in[1], "weight", 1, p->width));
    KV_TRY(kv_check_plain(n->in[1], "weight"));
    if (n->in[2]) KV_TRY(kv_check_shape(n->in[2], "residual", x->rows, x->cols));
    return kv_check_shape(n->out, "out", x->rows, x->cols);
}

static void norm_part(float *x, const float *weight, int64_t width, float eps) {
    double squares = 0;
    for (int64_t i = 0; i < width; i++) squares += (double)x[i] * (double)x[i];
    double scale = 1 / sqrt(squares / (double)width + (double)eps);
    for (int64_t i = 0; i < width; i++) x[i] = (float)((double)x[i] * scale * (double)weight[i]);
}

static kv_status reference(const kv_node *n) {
    const kv_norm_params *p = n->params;
    int64_t cols = n->out->cols;
    float *x = kv_alloc(3 * cols, sizeof *x), *residual = x + cols, *weight = x + 2 * cols;
    if (!x) return KVANT_NO_MEMORY;
    kv_status status = kv_read_row(weight, n->in[1], 0);
    for (int64_t r = 0; !status && r < n->out->rows; r++) {
        status = kv_read_row(x, n->in[0], r);
        for (int64_t c = 0; !status && c < cols; c += p->width) norm_part(x + c, weight, p->width, p->eps);
        if (!status && n->in[2]) status = kv_read_row(residual, n->in[2], r);
        for (int64_t c = 0; n->in[2] && c < cols; c++) x[c] += residual[c];
        if (!status) kv_write_row(n->out, r, x);
    }
    kv_free(x);
    return status;
}

const kv_op kv_op_norm = {.name = "norm", .check = check, .reference = reference};

kv_tensor *kv_norm(kv_graph *g, const kv_norm_params *p, kv_tensor *x, kv_tensor *weight, kv_tensor *residual,
                   const kv_dtype *out) {
    if (g->status || !x || !weight) return NULL;
    kv_node node = {.op = &kv_op_norm, .in = {x, weight, residual}, .params = p};
    node.out = kv_graph_tensor(g, out, x->rows, x->cols);
    return kv_graph_add(g, &node, sizeof *p);
}
