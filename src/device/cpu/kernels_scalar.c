/* kernels_scalar.c: every role in plain C. This is the specification of the kernels and what runs where no
 * better one does. Sums that a vector kernel would split are taken in double here. */
#include "device/cpu/kernel.h"

#include <math.h>

enum { MAX_HEAD_DIM = 1024 };

kv_panel_fn kv_panel_scalar;
kv_score_fn kv_score_any_rows_scalar;
kv_accumulate_fn kv_accumulate_any_rows_scalar;
kv_exp_sum_fn kv_exp_sum_scalar;
kv_norm_fn kv_norm_scalar;
kv_glu_fn kv_glu_silu_scalar, kv_glu_gelu_scalar;

void kv_panel_scalar(const kv_panel_args *a) {
    for (int32_t j = 0; j < a->n_x; j++) {
        const float *x = a->x + (size_t)j * a->x_step;
        float *y = a->y + (size_t)j * a->y_step;
        for (int64_t c = 0; c < a->cols; c++)
            for (int r = 0; r < KV_TILE_ROWS; r++) y[r] += a->w[c * KV_TILE_ROWS + r] * x[c];
    }
}

void kv_score_any_rows_scalar(const kv_score_args *a) {
    float k[MAX_HEAD_DIM];
    for (int32_t c = 0; c < a->n_cells; c++) {
        a->dtype->decode(k, (const uint8_t *)a->k + (size_t)c * a->k_bytes, a->head_dim);
        for (int32_t i = 0; i < a->n_q; i++) {
            const float *q = a->q + (size_t)i * (size_t)a->head_dim;
            double sum = 0;
            for (int32_t d = 0; d < a->head_dim; d++) sum += (double)q[d] * (double)k[d];
            a->s[(size_t)i * a->s_step + (size_t)c] = (float)sum;
        }
    }
}

void kv_accumulate_any_rows_scalar(const kv_accumulate_args *a) {
    float v[MAX_HEAD_DIM];
    for (int32_t c = 0; c < a->n_cells; c++) {
        a->dtype->decode(v, (const uint8_t *)a->v + (size_t)c * a->v_bytes, a->head_dim);
        for (int32_t i = 0; i < a->n_q; i++) {
            float p = a->p[(size_t)i * a->p_step + (size_t)c];
            if (p == 0) continue;
            float *o = a->o + (size_t)i * (size_t)a->head_dim;
            for (int32_t d = 0; d < a->head_dim; d++) o[d] += p * v[d];
        }
    }
}

float kv_exp_sum_scalar(float *p, int32_t n, float max) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        p[i] = expf(p[i] - max);
        sum += (double)p[i];
    }
    return (float)sum;
}

void kv_norm_scalar(float *y, const float *x, const float *w, int64_t n, float eps) {
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    float scale = (float)(1.0 / sqrt(squares / (double)n + (double)eps));
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * w[i];
}

void kv_glu_silu_scalar(float *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

void kv_glu_gelu_scalar(float *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float x = gate[i], inner = 0.79788456080286535588f * (x + 0.044715f * x * x * x); /* sqrt(2 / pi) */
        y[i] = 0.5f * x * (1.0f + tanhf(inner)) * up[i];
    }
}
