/* statistics.c: see the header. */
#include "statistics.h"

#include <math.h>
#include <stdlib.h>

void cli_mean_add(cli_mean *m, double x) {
    m->n++;
    double delta = x - m->mean;
    m->mean += delta / (double)m->n;
    m->squares += delta * (x - m->mean);
    if (m->n == 1 || x > m->most) m->most = x;
}

double cli_mean_error(const cli_mean *m) {
    return m->n < 2 ? 0 : sqrt(m->squares / (double)(m->n - 1) / (double)m->n);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double cli_median(double *values, size_t n) {
    qsort(values, n, sizeof *values, compare);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

double cli_log_sum_exp(const float *logits, int32_t n, int32_t *best) {
    int32_t top = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[top]) top = i;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += exp((double)logits[i] - (double)logits[top]);
    if (best) *best = top;
    return (double)logits[top] + log(sum);
}

double cli_divergence(const float *base, double base_norm, const float *logits, double norm, int32_t n) {
    double kl = 0;
    for (int32_t i = 0; i < n; i++) {
        double log_p = (double)base[i] - base_norm;
        kl += exp(log_p) * (log_p - ((double)logits[i] - norm));
    }
    return kl;
}
