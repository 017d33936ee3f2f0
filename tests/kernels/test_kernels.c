/* Every kernel that this processor can run against the scalar truth, each in a child so that a crash is a
 * failed test; and wrong kernels, to prove that the check finds them. KVANT_SEED repeats a run, KVANT_FILTER
 * picks kernels. */
#include "base/clock.h"
#include "base/half.h"
#include "device/cpu/kernel_check.h"
#include "layout/layout.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t seed;

enum { PASSED = 0, FAILED = 1, BROKEN = 2, CRASHED = 3 };

/* Runs in the child. */
static int outcome_of(const kv_kernel *kernel, bool quiet) {
    kv_check_result result;
    if (kv_kernel_check(&result, kernel, seed)) {
        fprintf(stderr, "%s: %s\n", kernel->name, kv_last_error());
        return BROKEN;
    }
    if (!quiet && result.passed)
        fprintf(stderr, "  %-40s worst error %.2f of its bound\n", kernel->name, result.worst);
    if (!quiet && !result.passed) fprintf(stderr, "  %-40s FAILED: %s\n", kernel->name, result.fault);
    return result.passed ? PASSED : FAILED;
}

static int check_in_child(const kv_kernel *kernel, bool quiet) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0}); /* a crash is expected of one, no need to keep it */
        signal(SIGSEGV, SIG_DFL);                    /* the test library would catch it */
        signal(SIGBUS, SIG_DFL);
        signal(SIGILL, SIG_DFL);
        _exit(outcome_of(kernel, quiet));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) <= BROKEN) return WEXITSTATUS(status);
    if (!quiet) fprintf(stderr, "  %-40s CRASHED (wait status %#x)\n", kernel->name, (unsigned)status);
    return CRASHED;
}

static void test_every_kernel(void **state) {
    (void)state;
    const char *filter = getenv("KVANT_FILTER");
    unsigned cpu = kv_cpu_detect();
    int n_failed = 0, n_left_out = 0, n_checked = 0;
    for (int32_t i = 0; i < kv_kernel_count(); i++) {
        const kv_kernel *k = kv_kernel_at(i);
        if ((k->cpu & cpu) != k->cpu || (filter && !strstr(k->name, filter))) {
            n_left_out++;
            continue;
        }
        n_checked++;
        n_failed += check_in_child(k, false) != PASSED;
    }
    fprintf(stderr, "  %d kernels checked, %d left out (other processors), seed %llu\n", n_checked,
            n_left_out, (unsigned long long)seed);
    assert_int_equal(n_failed, 0);
    assert_true(n_checked > 0);
}

/* ---- wrong kernels */

static const kv_kernel *scalar(kv_role role) {
    const kv_kernel *k = kv_kernel_pick(role, NULL, NULL, &kv_layout_rows, KV_CPU_SCALAR);
    if (!k) k = kv_kernel_pick(role, NULL, NULL, NULL, KV_CPU_SCALAR);
    assert_non_null(k);
    return k;
}

static void norm_in_half(float *y, const float *x, const float *w, int64_t n, float eps) {
    scalar(KV_ROLE_norm)->norm(y, x, w, n, eps);
    for (int64_t i = 0; i < n; i++) y[i] = kv_f16_to_f32(kv_f16_from_f32(y[i]));
}

static void norm_writes_past(float *y, const float *x, const float *w, int64_t n, float eps) {
    scalar(KV_ROLE_norm)->norm(y, x, w, n, eps);
    y[-1] = 0;
}

static volatile float sink;
static void norm_reads_past(float *y, const float *x, const float *w, int64_t n, float eps) {
    scalar(KV_ROLE_norm)->norm(y, x, w, n, eps);
    sink = w[n];
}

static void encode_cuts(void *dst, const float *src, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = (uint16_t)(kv_f32_bits(src[i]) >> 16);
        memcpy((char *)dst + 2 * i, &h, sizeof h);
    }
}

static float exp_sum_not_zero(float *p, int32_t n, float max) {
    float sum = 0;
    for (int32_t i = 0; i < n; i++) {
        p[i] = expf(fmaxf(p[i] - max, -87.0f));
        sum += p[i];
    }
    return sum;
}

static void score_forgets_last_dimension(const kv_score_args *a) {
    scalar(KV_ROLE_score)->score(a);
    a->s[0] *= 1 + 1e-4f;
}

/* Multiplies unused cells by 0 instead of skipping them. */
static void accumulate_multiplies(const kv_accumulate_args *a) {
    float v[1024];
    for (int32_t c = 0; c < a->n_cells; c++) {
        a->dtype->decode(v, (const uint8_t *)a->v + (size_t)c * a->v_bytes, a->head_dim);
        for (int32_t i = 0; i < a->n_q; i++)
            for (int32_t d = 0; d < a->head_dim; d++)
                a->o[i * a->head_dim + d] += a->p[(size_t)i * a->p_step + (size_t)c] * v[d];
    }
}

static void glu_swaps(float *y, const float *gate, const float *up, int64_t n) {
    scalar(KV_ROLE_glu_silu)->glu_silu(y, up, gate, n);
}

static void test_wrong_kernels_are_found(void **state) {
    (void)state;
    const kv_layout *rows = &kv_layout_rows;
    const struct {
        kv_kernel kernel;
        int outcome;
    } wrong[] = {
        {{.name = "norm in half", .role = KV_ROLE_norm, .norm = norm_in_half}, FAILED},
        {{.name = "norm writes past", .role = KV_ROLE_norm, .norm = norm_writes_past}, FAILED},
        {{.name = "norm reads past", .role = KV_ROLE_norm, .norm = norm_reads_past}, CRASHED},
        {{.name = "encode cuts", .role = KV_ROLE_encode, .a = &kv_dtype_bf16, .encode = encode_cuts}, FAILED},
        {{.name = "exp_sum not zero", .role = KV_ROLE_exp_sum, .exp_sum = exp_sum_not_zero}, FAILED},
        {{.name = "score", .role = KV_ROLE_score, .layout = rows, .score = score_forgets_last_dimension},
         FAILED},
        {{.name = "accumulate",
          .role = KV_ROLE_accumulate,
          .layout = rows,
          .accumulate = accumulate_multiplies},
         FAILED},
        {{.name = "glu swaps", .role = KV_ROLE_glu_silu, .glu_silu = glu_swaps}, FAILED},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int outcome = check_in_child(&wrong[i].kernel, true);
        if (outcome != wrong[i].outcome) fprintf(stderr, "  %s: outcome %d\n", wrong[i].kernel.name, outcome);
        assert_int_equal(outcome, wrong[i].outcome);
    }
}

static void keep(void *user, const kv_check_result *result) {
    int *n = user;
    assert_true(result->passed);
    if (result->seconds > 0) (*n)++;
}

static void test_check_all_and_bench(void **state) {
    (void)state;
    int32_t n_failed, n_timed = 0;
    kv_check_options options = {
        .cpu = KV_CPU_SCALAR, .seed = seed, .filter = "kv_norm_scalar", .bench = true};
    assert_int_equal(kv_kernel_check_all(&n_failed, &options, keep, &n_timed), KVANT_OK);
    assert_int_equal(n_failed, 0);
    assert_int_equal(n_timed, 2);
}

int main(void) {
    const char *text = getenv("KVANT_SEED");
    seed = text ? strtoull(text, NULL, 0) : (uint64_t)kv_now_ns();
    fprintf(stderr, "KVANT_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kernel),
        cmocka_unit_test(test_wrong_kernels_are_found),
        cmocka_unit_test(test_check_all_and_bench),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
