/* kernel_check.h: every kernel of the table against plain double arithmetic and the scalar dtypes: random and
 * pathological input, odd sizes, memory fenced on both sides. The same cases, with fixed shapes, are the
 * benchmark. Prints nothing; a kernel that reads past its input stops the process by a fault, so tests run
 * each in a child. */
#pragma once

#include "base/status.h"
#include "device/cpu/kernel.h"

typedef struct kv_check_result {
    const kv_kernel *kernel;
    bool passed;
    double worst;    /* largest error as a share of its bound; 0 where results must be exact */
    char fault[192]; /* the first fault, "" if none */
    /* With `bench`, one result for each shape: */
    char shape[64];    /* "n_q 4, head_dim 128" */
    double seconds;    /* of one call, the least of many; 0 if not measured */
    double gb_per_s;   /* of what is read and written, counted once */
    double gmac_per_s; /* multiply-adds; 0 where there are none */
} kv_check_result;

/* Checks one kernel, which the processor must be able to run. The status is about the check itself (no
 * memory); what the kernel did is in *out. Same seed, same cases. */
kv_status kv_kernel_check(kv_check_result *out, const kv_kernel *kernel, uint64_t seed);

typedef void kv_check_report_fn(void *user, const kv_check_result *result);

typedef struct kv_check_options {
    unsigned cpu; /* kernels that need other flags are left out */
    uint64_t seed;
    const char *filter; /* part of the kernel's or role's name; NULL: all */
    bool bench;         /* after each kernel's result, one for each shape it is timed with */
} kv_check_options;

/* Checks every kernel that fits, in the order of the table. *n_failed counts those that did not pass. */
kv_status kv_kernel_check_all(int32_t *n_failed, const kv_check_options *options, kv_check_report_fn *report,
                              void *user);
/* Times one kernel in each of its shapes. */
kv_status kv_kernel_bench(const kv_kernel *kernel, uint64_t seed, kv_check_report_fn *report, void *user);
