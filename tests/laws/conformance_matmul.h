/* conformance_matmul.h: cases of matmul and matmul_glu: weights of every dtype in every layout. */
#pragma once

#include "conformance.h"
#include "conformance_rows.h"
#include "op/glu.h"
#include "op/matmul.h"

/* Of an operand, number by number: its value, and the most that a kernel may make it of: a weight of a block
 * is a scaled quant and a minimum (or an offset), both up to twice the largest of the block. */
typedef struct conf_operand {
    const float *value;
    double *parts;
} conf_operand;

static inline conf_operand conf_read_operand(conf_case *c, const kv_tensor *t) {
    conf_operand o = {.value = conf_read(c, t), .parts = conf_alloc(c, t->rows * t->cols, sizeof(double))};
    int64_t step = t->dtype->block_elems > 32 ? 32 : t->dtype->block_elems;
    for (int64_t i = 0; i < t->rows * t->cols; i += step) {
        double most = 0;
        for (int64_t j = i; j < i + step; j++) most = fmax(most, fabs((double)o.value[j]));
        for (int64_t j = i; j < i + step; j++) o.parts[j] = step > 1 ? 3 * most : most;
    }
    return o;
}

/* Row i of x times row r of w; *terms is the sum of magnitudes. */
static inline double conf_dot(const conf_operand *x, const conf_operand *w, int64_t i, int64_t r,
                              int64_t cols, double *terms) {
    double sum = 0;
    *terms = 0;
    for (int64_t k = 0; k < cols; k++) {
        sum += (double)x->value[i * cols + k] * (double)w->value[r * cols + k];
        *terms += fabs((double)x->value[i * cols + k]) * w->parts[r * cols + k];
    }
    return sum;
}

static inline kv_tensor *conf_weights(conf_case *c, const kv_dtype *d, const kv_layout *l, int64_t rows,
                                      int64_t cols) {
    return conf_normal(c, d, l, rows, cols, 1 / sqrt((double)cols));
}

/* Shapes and activations of case i; x goes to in[0]. */
static inline void conf_make_product(conf_case *c, int32_t i, int64_t *rows, int64_t *cols) {
    static const kv_dtype *const acts[] = {&kv_dtype_a8, &kv_dtype_f32, &kv_dtype_f16};
    static const int64_t tails[] = {1, 5, 16, 17, 32, 33, 100, 300};
    const kv_dtype *d = conf_dtype(i), *act = acts[i / kv_dtype_count() / kv_layout_count() % 3];
    int64_t step = d->block_elems > act->block_elems ? d->block_elems : act->block_elems;
    *cols = step == 1 ? conf_between(c, 1, 300) : step * conf_between(c, 1, step > 32 ? 2 : 5);
    int64_t n = conf_tokens(c);
    *rows = n > 32 ? tails[conf_between(c, 0, 4)] : conf_choose(c, tails);
    c->in[0] = conf_normal(c, act, &kv_layout_rows, n, *cols, 1);
    c->n_compared = n;
}

static inline void conf_describe_product(conf_case *c, const char *more) {
    const kv_tensor *x = c->in[0], *w = c->in[1];
    snprintf(c->text, sizeof c->text, "%lld rows of %s x %s %s %lld x %lld%s, to %s", (long long)x->rows,
             x->dtype->name, w->dtype->name, w->layout->name, (long long)w->rows, (long long)w->cols, more,
             c->out->name);
}

/* ---- matmul */

static inline void conf_bound_matmul(conf_case *c) {
    conf_operand x = conf_read_operand(c, c->in[0]), w = conf_read_operand(c, c->in[1]);
    const float *bias = c->in[2] ? conf_read(c, c->in[2]) : NULL;
    const float *residual = c->in[3] ? conf_read(c, c->in[3]) : NULL;
    int64_t rows = c->in[1]->rows, cols = c->in[1]->cols;
    c->bound = conf_alloc(c, c->in[0]->rows * rows, sizeof *c->bound);
    for (int64_t i = 0; i < c->in[0]->rows; i++)
        for (int64_t r = 0; r < rows; r++) {
            double terms;
            conf_dot(&x, &w, i, r, cols, &terms);
            if (bias) terms += fabs((double)bias[r]);
            if (residual) terms += fabs((double)residual[i * rows + r]);
            c->bound[i * rows + r] = conf_rounding(cols) * terms + 0x1p-140; /* a soft cap only shrinks it */
        }
}

static inline void conf_make_matmul(conf_case *c, int32_t i) {
    int64_t rows, cols;
    conf_make_product(c, i, &rows, &cols);
    c->in[1] = conf_weights(c, conf_dtype(i), conf_layout(i / kv_dtype_count()), rows, cols);
    if (conf_chance(c, 0.4)) c->in[2] = conf_floats(c, 1, rows, 1);
    if (conf_chance(c, 0.4))
        c->in[3] = conf_normal(c, conf_plain(c), &kv_layout_rows, c->in[0]->rows, rows, 1);
    kv_matmul_params p = {.softcap = conf_chance(c, 0.3) ? 1.5f : 0};
    c->params = conf_copy(c, &p, sizeof p);
    c->out = conf_plain(c);
    conf_bound_matmul(c);
    char more[64];
    snprintf(more, sizeof more, "%s%s%s", c->in[2] ? ", bias" : "", c->in[3] ? ", residual" : "",
             p.softcap > 0 ? ", soft cap" : "");
    conf_describe_product(c, more);
}

static inline kv_tensor *conf_build_matmul(const conf_case *c, kv_graph *g) {
    return kv_matmul(g, c->params, c->in[0], c->in[1], c->in[2], c->in[3], c->out);
}

/* ---- matmul_glu: act' is at most 1.13 for both activations */

static inline void conf_bound_matmul_glu(conf_case *c) {
    conf_operand x = conf_read_operand(c, c->in[0]), w_gate = conf_read_operand(c, c->in[1]),
                 w_up = conf_read_operand(c, c->in[2]);
    int64_t rows = c->in[1]->rows, cols = c->in[1]->cols;
    c->bound = conf_alloc(c, c->in[0]->rows * rows, sizeof *c->bound);
    for (int64_t i = 0; i < c->in[0]->rows; i++)
        for (int64_t r = 0; r < rows; r++) {
            double gate_terms, up_terms;
            double gate = conf_dot(&x, &w_gate, i, r, cols, &gate_terms);
            double up = conf_dot(&x, &w_up, i, r, cols, &up_terms);
            double gate_off = conf_rounding(cols) * gate_terms, up_off = conf_rounding(cols) * up_terms;
            c->bound[i * rows + r] =
                1.13 * gate_off * (fabs(up) + up_off) + fabs(gate) * up_off + conf_glu_bound(gate, up);
        }
}

static inline void conf_make_matmul_glu(conf_case *c, int32_t i) {
    int64_t rows, cols;
    conf_make_product(c, i, &rows, &cols);
    const kv_layout *l = conf_layout(i / kv_dtype_count());
    bool mixed = conf_dtype(i)->block_elems == 32 && conf_chance(c, 0.3);
    c->in[1] = conf_weights(c, conf_dtype(i), l, rows, cols);
    c->in[2] = conf_weights(c, mixed ? &kv_dtype_q4_0 : conf_dtype(i), l, rows, cols);
    kv_glu_params p = {conf_chance(c, 0.5) ? KV_GLU_SILU : KV_GLU_GELU};
    c->params = conf_copy(c, &p, sizeof p);
    c->out = conf_coded(c, rows);
    conf_bound_matmul_glu(c);
    conf_describe_product(c, p.act == KV_GLU_SILU ? ", silu" : ", gelu");
}

static inline kv_tensor *conf_build_matmul_glu(const conf_case *c, kv_graph *g) {
    return kv_matmul_glu(g, c->params, c->in[0], c->in[1], c->in[2], c->out);
}
