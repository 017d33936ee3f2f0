/* kernel_check.c: runs the cases of a kernel's role, and times its shapes. */
#include "device/cpu/kernel_check.h"

#include "base/clock.h"
#include "device/cpu/check_case.h"

#include <stdio.h>
#include <string.h>

enum {
    CASES_PER_PATTERN = 24,
    BENCH_ROUNDS = 40,
    BENCH_ROUND_NS = 50000, /* a round repeats the call until this long has passed */
};

static const kv_check_role *const roles[KV_N_ROLES] = {
#define KV_CHECK_ROLE(name) [KV_ROLE_##name] = &kv_check_##name,
#include "device/cpu/check_roles.inc"
#undef KV_CHECK_ROLE
};

/* A dtype that an `any` kernel serves: these four code cells and have every kind of block. */
static const kv_dtype *some_dtype(kv_check_case *c) {
    static const kv_dtype *const list[] = {&kv_dtype_f32, &kv_dtype_f16, &kv_dtype_q8_0, &kv_dtype_q4_1};
    return list[kv_check_between(c, 0, 3)];
}

static void close_case(kv_check_case *c) {
    for (int i = 0; i < KV_CHECK_INPUTS; i++) kv_fence_close(&c->in[i]);
    kv_fence_close(&c->out);
}

static void check_fences(kv_check_case *c) {
    for (int i = 0; i < KV_CHECK_INPUTS; i++)
        if (!kv_fence_intact(&c->in[i])) kv_check_fault(c, "wrote outside of input %d", i);
    if (!kv_fence_intact(&c->out)) kv_check_fault(c, "wrote outside of its output");
}

static kv_status run_case(kv_check_case *c, const kv_check_role *role) {
    c->shape = (kv_check_shape){.dtype = c->kernel->a ? c->kernel->a : some_dtype(c)};
    c->bad = -1;
    role->pick(c);
    kv_status status = role->setup(c);
    if (!status) {
        role->run(c);
        check_fences(c);
        role->verify(c);
    }
    close_case(c);
    return status;
}

kv_status kv_kernel_check(kv_check_result *out, const kv_kernel *kernel, uint64_t seed) {
    *out = (kv_check_result){.kernel = kernel, .passed = true};
    kv_check_case c = {.result = out, .kernel = kernel};
    kv_random_init(&c.random, seed);
    for (int p = 0; p < KV_CHECK_N_PATTERNS; p++)
        for (int i = 0; i < CASES_PER_PATTERN && out->passed; i++) {
            c.pattern = (kv_check_pattern)p;
            KV_TRY(run_case(&c, roles[kernel->role]));
        }
    return KVANT_OK;
}

/* ---- timing */

static double measure(kv_check_case *c, const kv_check_role *role) {
    int64_t start = kv_now_ns(), calls = 0;
    do {
        role->run(c);
        calls++;
    } while (kv_now_ns() - start < BENCH_ROUND_NS);
    double least = 1e9;
    for (int r = 0; r < BENCH_ROUNDS; r++) {
        start = kv_now_ns();
        for (int64_t i = 0; i < calls; i++) role->run(c);
        double seconds = kv_seconds_since(start) / (double)calls;
        if (seconds < least) least = seconds;
    }
    return least;
}

static void describe_shape(char *text, size_t size, const kv_check_shape *s) {
    int at = snprintf(text, size, "n %lld", (long long)s->n);
    if (s->rows) at += snprintf(text + at, size - (size_t)at, ", rows %d", s->rows);
    if (s->columns) snprintf(text + at, size - (size_t)at, ", columns %d", s->columns);
}

static kv_status bench_shape(kv_check_result *out, kv_check_case *c, const kv_check_role *role) {
    kv_status status = role->setup(c);
    if (!status) {
        double bytes = 0, macs = 0;
        role->cost(c, &bytes, &macs);
        out->seconds = measure(c, role);
        out->gb_per_s = bytes / out->seconds * 1e-9;
        out->gmac_per_s = macs / out->seconds * 1e-9;
        describe_shape(out->shape, sizeof out->shape, &c->shape);
    }
    close_case(c);
    return status;
}

kv_status kv_kernel_bench(const kv_kernel *kernel, uint64_t seed, kv_check_report_fn *report, void *user) {
    const kv_check_role *role = roles[kernel->role];
    for (int i = 0; i < (int)(sizeof role->bench / sizeof *role->bench) && role->bench[i].n; i++) {
        kv_check_result result = {.kernel = kernel, .passed = true};
        kv_check_case c = {
            .result = &result, .kernel = kernel, .shape = role->bench[i], .timed = true, .bad = -1};
        kv_random_init(&c.random, seed);
        if (!c.shape.dtype) c.shape.dtype = kernel->a ? kernel->a : &kv_dtype_q8_0;
        KV_TRY(bench_shape(&result, &c, role));
        report(user, &result);
    }
    return KVANT_OK;
}

static bool chosen(const kv_kernel *k, const kv_check_options *o) {
    return (k->cpu & o->cpu) == k->cpu &&
           (!o->filter || strstr(k->name, o->filter) || strstr(kv_role_name(k->role), o->filter));
}

kv_status kv_kernel_check_all(int32_t *n_failed, const kv_check_options *options, kv_check_report_fn *report,
                              void *user) {
    *n_failed = 0;
    for (int32_t i = 0; i < kv_kernel_count(); i++) {
        const kv_kernel *k = kv_kernel_at(i);
        if (!chosen(k, options)) continue;
        kv_check_result result;
        KV_TRY(kv_kernel_check(&result, k, options->seed));
        *n_failed += !result.passed;
        report(user, &result);
        if (options->bench) KV_TRY(kv_kernel_bench(k, options->seed, report, user));
    }
    return KVANT_OK;
}
