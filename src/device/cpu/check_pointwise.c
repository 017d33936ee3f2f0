/* check_pointwise.c: checks of exp_sum, norm and the gated activations. */
#include "device/cpu/check_case.h"

#include <math.h>

static void pick(kv_check_case *c) {
    static const int32_t sizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 129, 576};
    c->shape = (kv_check_shape){.n = kv_check_choose(c, sizes, sizeof sizes / sizeof *sizes),
                                .in_place = kv_check_chance(c, 0.5)};
}

/* Two inputs of the pattern; the output is rubbish, or a copy of the first input where the kernel works in
 * place. */
static kv_status setup(kv_check_case *c) {
    size_t bytes = (size_t)c->shape.n * sizeof(float);
    for (int i = 0; i < 2; i++) {
        KV_TRY(kv_fence_open(&c->in[i], bytes, sizeof(float)));
        kv_check_floats(c, (float *)c->in[i].at, c->shape.n);
    }
    KV_TRY(kv_fence_open(&c->out, bytes, sizeof(float)));
    float *out = (float *)c->out.at;
    const float *in = (const float *)c->in[0].at;
    for (int64_t i = 0; c->shape.in_place && i < c->shape.n; i++) out[i] = in[i];
    return KVANT_OK;
}

static const float *input(const kv_check_case *c, int i) { return (const float *)c->in[i].at; }
static float *output(const kv_check_case *c) { return (float *)c->out.at; }
/* The first argument of a kernel that may work in place. */
static const float *first(const kv_check_case *c) { return c->shape.in_place ? output(c) : input(c, 0); }

/* ---- exp_sum: works in place always; the input is kept as in[0] */

static void pick_exp_sum(kv_check_case *c) {
    pick(c);
    c->shape.in_place = true;
}

static kv_status setup_exp_sum(kv_check_case *c) {
    KV_TRY(setup(c));
    float *kept = (float *)c->in[0].at, *p = output(c);
    float max = -INFINITY;
    for (int64_t i = 0; i < c->shape.n; i++) {
        kept[i] *= 30;
        if (isnan(kept[i]) || kv_check_chance(c, 0.1)) kept[i] = -INFINITY; /* masked */
        if (kept[i] == INFINITY) kept[i] = 3;
        p[i] = kept[i];
        if (p[i] > max) max = p[i];
    }
    c->value = max == -INFINITY ? 0 : max;
    if (kv_check_chance(c, 0.3)) c->value += 20; /* of an earlier block */
    if (!c->timed) return KVANT_OK;
    c->value = 3; /* repeated on its own results, exp(x - 3) stays in range */
    for (int64_t i = 0; i < c->shape.n; i++) p[i] = (float)kv_random_unit(&c->random);
    return KVANT_OK;
}

static void run_exp_sum(kv_check_case *c) {
    c->returned = c->kernel->exp_sum(output(c), (int32_t)c->shape.n, c->value);
}

static void verify_exp_sum(kv_check_case *c) {
    double sum = 0;
    for (int64_t i = 0; i < c->shape.n; i++) {
        float x = input(c, 0)[i] - c->value;
        double want = exp((double)x);
        if (x == -INFINITY && output(c)[i] != 0) kv_check_fault(c, "exp(-Inf) is not 0");
        kv_check_close(c, i, output(c)[i], want, want + 0x1p-103, 3.35); /* 2e-7; a subnormal may be 0 */
        sum += want;
    }
    kv_check_close(c, -1, c->returned, sum, sum, 8 + (double)c->shape.n);
}

static void cost(const kv_check_case *c, double *bytes, double *macs) {
    *bytes = 3.0 * (double)c->shape.n * sizeof(float);
    *macs = 0;
}

static void cost_exp_sum(const kv_check_case *c, double *bytes, double *macs) {
    *bytes = 2.0 * (double)c->shape.n * sizeof(float);
    *macs = 0;
}

const kv_check_role kv_check_exp_sum = {.pick = pick_exp_sum,
                                        .setup = setup_exp_sum,
                                        .run = run_exp_sum,
                                        .verify = verify_exp_sum,
                                        .cost = cost_exp_sum,
                                        .bench = {{.n = 64, .in_place = true}}};

/* ---- norm */

static kv_status setup_norm(kv_check_case *c) {
    c->value = kv_check_chance(c, 0.5) ? 1e-5f : 1e-6f;
    return setup(c);
}

static void run_norm(kv_check_case *c) {
    c->kernel->norm(output(c), first(c), input(c, 1), c->shape.n, c->value);
}

static void verify_norm(kv_check_case *c) {
    const float *x = input(c, 0), *w = input(c, 1);
    double squares = 0;
    for (int64_t i = 0; i < c->shape.n; i++) squares += (double)x[i] * (double)x[i];
    double scale = 1 / sqrt(squares / (double)c->shape.n + (double)c->value);
    for (int64_t i = 0; i < c->shape.n; i++) {
        double want = (double)x[i] * scale * (double)w[i];
        /* x * scale is rounded to a subnormal where it is one */
        kv_check_close(c, i, output(c)[i], want, fabs(want) + 0x1p-125 * fabs((double)w[i]), 8);
    }
}

const kv_check_role kv_check_norm = {.pick = pick,
                                     .setup = setup_norm,
                                     .run = run_norm,
                                     .verify = verify_norm,
                                     .cost = cost,
                                     .bench = {{.n = 576}, {.n = 2048}}};

/* ---- glu_silu, glu_gelu */

/* Gates from -100 to 100: beyond that, both activations are 0 or the gate itself. */
static kv_status setup_glu(kv_check_case *c) {
    KV_TRY(setup(c));
    float *gate = (float *)c->in[0].at;
    for (int64_t i = 0; i < c->shape.n; i++) {
        if (c->pattern == KV_CHECK_NORMAL) gate[i] *= 20;
        if (isinf(gate[i])) gate[i] = 1; /* 0 * Inf: the reference itself is NaN */
        if (c->shape.in_place) output(c)[i] = gate[i];
    }
    return KVANT_OK;
}

static void run_silu(kv_check_case *c) { c->kernel->glu_silu(output(c), first(c), input(c, 1), c->shape.n); }
static void run_gelu(kv_check_case *c) { c->kernel->glu_gelu(output(c), first(c), input(c, 1), c->shape.n); }

static double silu(double x) { return x / (1 + exp(-x)); }
static double gelu(double x) {
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static void verify_glu(kv_check_case *c, double act(double)) {
    for (int64_t i = 0; i < c->shape.n; i++) {
        double gate = (double)input(c, 0)[i], up = (double)input(c, 1)[i];
        /* an intermediate product may be rounded to a subnormal */
        kv_check_close(c, i, output(c)[i], act(gate) * up, (fabs(gate) + 0x1p-125) * fabs(up), 8);
    }
}

static void verify_silu(kv_check_case *c) { verify_glu(c, silu); }
static void verify_gelu(kv_check_case *c) { verify_glu(c, gelu); }

const kv_check_role kv_check_glu_silu = {.pick = pick,
                                         .setup = setup_glu,
                                         .run = run_silu,
                                         .verify = verify_silu,
                                         .cost = cost,
                                         .bench = {{.n = 1536}}};
const kv_check_role kv_check_glu_gelu = {.pick = pick,
                                         .setup = setup_glu,
                                         .run = run_gelu,
                                         .verify = verify_gelu,
                                         .cost = cost,
                                         .bench = {{.n = 1536}}};
