/* statistics.h: means with their standard error, medians, and what logits say. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Running mean and sum of squared deviations (B. P. Welford, 1962). */
typedef struct cli_mean {
    int64_t n;
    double mean, squares, most;
} cli_mean;

void cli_mean_add(cli_mean *m, double x);
/* Of the mean; 0 with fewer than 2 values. */
double cli_mean_error(const cli_mean *m);

/* Of n > 0 values, which get sorted. */
double cli_median(double *values, size_t n);

/* log(sum exp) of n > 0 logits; *best (may be NULL) is the likeliest token. */
double cli_log_sum_exp(const float *logits, int32_t n, int32_t *best);
/* KL(base || other) of the distributions of two rows of logits, given their log(sum exp). */
double cli_divergence(const float *base, double base_norm, const float *logits, double norm, int32_t n);
