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
