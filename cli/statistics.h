/* statistics.h: means with their standard error, and medians. */
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
