/* check_case.h: what the checks of all roles share: fenced memory, input of every kind, comparison. A role's
 * check is a const kv_check_role in a check_*.c file and a line in check_roles.inc. */
#pragma once

#include "base/random.h"
#include "device/cpu/kernel_check.h"

/* Memory whose end lies against a page that cannot be touched, with known bytes around it. */
typedef struct kv_fence {
    uint8_t *map;
    size_t map_bytes;
    uint8_t *at;
    size_t bytes;
} kv_fence;

enum { KV_CHECK_INPUTS = 3 };

typedef enum kv_check_pattern {
    KV_CHECK_NORMAL,
    KV_CHECK_ZERO,
    KV_CHECK_HUGE, /* about 1e18: products are finite */
    KV_CHECK_TINY, /* about 1e-30: products are not normal */
    KV_CHECK_SUBNORMAL,
    KV_CHECK_MIXED,   /* every exponent, zeros of both signs */
    KV_CHECK_OUTLIER, /* one number far above the rest */
    KV_CHECK_TIES,    /* whole and half numbers up to 127 */
    KV_CHECK_N_FINITE,
    KV_CHECK_SPECIAL = KV_CHECK_N_FINITE, /* with Inf and NaN */
    KV_CHECK_N_PATTERNS
} kv_check_pattern;

/* What a role makes of these is its own business. */
typedef struct kv_check_shape {
    const kv_dtype *dtype; /* the kernel's, or one of those that an `any` kernel serves */
    int64_t n;             /* numbers: of a row, a head, a vector */
    int32_t rows;          /* cells or tiles */
    int32_t columns;       /* queries or activations */
    int32_t gap;           /* extra bytes or numbers between rows */
    bool in_place;
} kv_check_shape;

typedef struct kv_check_case {
    kv_check_result *result;
    const kv_kernel *kernel;
    kv_random random;
    kv_check_shape shape;
    kv_check_pattern pattern;
    kv_fence in[KV_CHECK_INPUTS], out;
    float value, returned; /* a scalar argument and the result, where the role has them */
    bool timed;            /* a run of the benchmark: the kernel is called many times, and not verified */
    int32_t bad;           /* row that holds rubbish, -1 for none */
} kv_check_case;

typedef struct kv_check_role {
    void (*pick)(kv_check_case *c);       /* a random shape */
    kv_status (*setup)(kv_check_case *c); /* input for it; output filled with rubbish */
    void (*run)(kv_check_case *c);
    void (*verify)(kv_check_case *c);
    void (*cost)(const kv_check_case *c, double *bytes, double *macs);
    kv_check_shape bench[4]; /* up to the first with n == 0; a NULL dtype becomes the kernel's, or q8_0 */
} kv_check_role;

#define KV_CHECK_ROLE(name) extern const kv_check_role kv_check_##name;
#include "device/cpu/check_roles.inc"
#undef KV_CHECK_ROLE

/* Replaces what *f held. Filled with 0xff: NaN in every float format. */
kv_status kv_fence_open(kv_fence *f, size_t bytes, size_t align);
void kv_fence_close(kv_fence *f);
bool kv_fence_intact(const kv_fence *f);

/* From low to high, both included. */
int64_t kv_check_between(kv_check_case *c, int64_t low, int64_t high);
int64_t kv_check_choose(kv_check_case *c, const int32_t *list, int32_t n);
bool kv_check_chance(kv_check_case *c, double chance);

/* n numbers of the case's pattern. */
void kv_check_floats(kv_check_case *c, float *x, int64_t n);
/* n numbers in `dtype` at dst: encoded ones of the pattern, or blocks of random bits that decode to finite
 * numbers. */
kv_status kv_check_coded(kv_check_case *c, const kv_dtype *dtype, void *dst, int64_t n);

void kv_check_fault(kv_check_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Result number i is right if it is within k roundings of `terms`, the sum of the magnitudes that went into
 * it. */
void kv_check_close(kv_check_case *c, int64_t i, float got, double want, double terms, double k);
/* The same with a bound of its own. */
void kv_check_within(kv_check_case *c, int64_t i, float got, double want, double bound);
