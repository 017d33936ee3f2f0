/* Conformance of the CPU device: for every op of the registry, what it computes through a plan is the op's
 * scalar reference within a bound that follows from the arithmetic, bit for bit where there is nothing to
 * round; under every instruction set of this machine, and the same bits with one thread and with three. An op
 * without a generator of cases fails the test. Layouts from outside are among the registered ones: one with
 * kernels of its own, one without. KVANT_SEED repeats a run, KVANT_ROUNDS=10 makes it ten times as long.
 */
#include "../../examples/custom_layout/pairs8.c"
#include "base/clock.h"
#include "base/cpu.h"
#include "conformance.h"
#include "conformance_cells.h"
#include "conformance_matmul.h"
#include "conformance_moves.h"
#include "conformance_rows.h"
#include "device/cpu/cpu_device.h"
#include "sched/plan.h"

#include <stdlib.h>

static const conf_generator generators[] = {
    {&kv_op_embed, 40, NULL, conf_make_embed, conf_build_embed},
    {&kv_op_select, 12, NULL, conf_make_select, conf_build_select},
    {&kv_op_norm, 60, NULL, conf_make_norm, conf_build_norm},
    {&kv_op_matmul, 96, NULL, conf_make_matmul, conf_build_matmul},
    {&kv_op_glu, 54, NULL, conf_make_glu, conf_build_glu},
    {&kv_op_matmul_glu, 96, NULL, conf_make_matmul_glu, conf_build_matmul_glu},
    {&kv_op_rope_table, 20, NULL, conf_make_rope_table, conf_build_rope_table},
    {&kv_op_cache_write, 0, conf_cell_cases, conf_make_cache_write, conf_build_cache_write},
    {&kv_op_cache_move, 0, conf_cell_cases, conf_make_cache_move, conf_build_cache_move},
    {&kv_op_cache_shift, 0, conf_cell_cases, conf_make_cache_shift, conf_build_cache_shift},
    {&kv_op_attend, 0, conf_cell_cases, conf_make_attend, conf_build_attend},
};
enum { N_GENERATORS = sizeof generators / sizeof *generators, MAX_LEVELS = 4 };

/* A level of instruction sets as two devices that differ in threads. */
typedef struct level {
    const char *name;
    kv_device *devices[2];
} level;

static level levels[MAX_LEVELS];
static int32_t n_levels;
static uint64_t seed;
static int32_t rounds = 1;
static double worst; /* error as a share of its bound, in f32 results of the running op */

static kvant_status register_layouts(void) {
    kvant_layout_desc whole_pages = KVANT_LAYOUT_DESC_INIT;
    whole_pages.name = "tile64";
    whole_pages.tile = 64;
    whole_pages.group = 4;
    whole_pages.chunk = 16;
    kvant_status status = kvant_register_layout(&kvant_layout);
    return status ? status : kvant_register_layout(&whole_pages);
}

static int open_devices(void **state) {
    static const char *const names[] = {"scalar", "avx2", "avx512", "neon"};
    (void)state;
    if (register_layouts()) return -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unsigned flags;
        if (kv_cpu_mask(&flags, names[i])) continue;
        level *l = &levels[n_levels++];
        l->name = names[i];
        for (int t = 0; t < 2; t++)
            if (kv_cpu_device_create(&l->devices[t], t, 1 + 2 * t, flags)) return -1;
    }
    return 0;
}

static int close_devices(void **state) {
    (void)state;
    for (int32_t i = 0; i < n_levels; i++)
        for (int t = 0; t < 2; t++) levels[i].devices[t]->destroy(levels[i].devices[t]);
    return 0;
}

/* What a node wrote: its result, or the tensors behind its parameters. */
typedef struct result {
    uint8_t *bytes;
    size_t n_bytes;
} result;

static void take(conf_case *c, result *r, const void *bytes, size_t n) {
    r->bytes = conf_copy(c, bytes, n);
    r->n_bytes = n;
}

static void take_written(conf_case *c, result r[CASE_WRITTEN]) {
    for (int i = 0; i < CASE_WRITTEN && c->written[i]; i++)
        take(c, &r[i], kv_tensor_data(c->written[i]), kv_tensor_bytes(c->written[i]));
}

static void reset_written(const conf_case *c) {
    for (int i = 0; i < CASE_WRITTEN && c->written[i]; i++)
        if (c->initial[i])
            memcpy(kv_tensor_data(c->written[i]), c->initial[i], kv_tensor_bytes(c->written[i]));
        else
            memset(kv_tensor_data(c->written[i]), 0xff, kv_tensor_bytes(c->written[i]));
}

/* The result as numbers, for ops that have one. */
static float *run_reference(conf_case *c, const conf_generator *gen, result written[CASE_WRITTEN]) {
    kv_graph g;
    kv_graph_init(&g);
    kv_tensor *out = gen->build(c, &g);
    if (g.status) fail_msg("%s, %s: %s", gen->op->name, c->text, kv_last_error());
    if (out) out->buffer = conf_tensor(c, out->dtype, out->layout, out->rows, out->cols)->buffer;
    reset_written(c);
    kv_node *n = g.nodes.at[g.nodes.count - 1];
    assert_ptr_equal(n->op, gen->op);
    assert_int_equal(n->op->reference(n), KVANT_OK);
    take_written(c, written);
    float *numbers = NULL;
    if (out) {
        out->rows = c->n_compared;
        numbers = conf_read(c, out);
    }
    kv_graph_clear(&g);
    return numbers;
}

static void compare_numbers(const conf_case *c, const conf_generator *gen, const char *where,
                            const float *want, const float *got, int64_t cols) {
    for (int64_t i = 0; i < c->n_compared * cols; i++) {
        const float *row = want + i / cols * cols;
        double allowed = c->bound ? c->bound[i] + conf_step(c->out, row, i % cols) : 0;
        if (c->bound && c->out == KV_FLOAT) allowed += fabs((double)want[i]) * 0x1p-24;
        double error = fabs((double)got[i] - (double)want[i]);
        if (c->out == KV_FLOAT && allowed > 0) worst = fmax(worst, error / allowed);
        if (!(error <= allowed))
            fail_msg("%s on %s: %s: row %lld, column %lld is %.9g, reference %.9g, off by %.3g, allowed %.3g",
                     gen->op->name, where, c->text, (long long)(i / cols), (long long)(i % cols),
                     (double)got[i], (double)want[i], error, allowed);
    }
}

/* Memory around a result: [out .. rounded up to 64 bytes), all 0xff before the run. */
static void check_margin(const conf_case *c, const conf_generator *gen, const kv_tensor *out) {
    const uint8_t *at = kv_tensor_data(out);
    size_t bytes = kv_tensor_bytes(out);
    for (size_t i = bytes; i < kv_round_up(bytes, 64); i++)
        if (at[i] != 0xff)
            fail_msg("%s, %s: byte %zu behind the result was written", gen->op->name, c->text, i);
}

static void run_on(conf_case *c, const conf_generator *gen, kv_device *device, const char *where,
                   const float *want, result *bytes, result written[CASE_WRITTEN]) {
    kv_graph g;
    kv_plan *plan = NULL;
    atomic_bool cancel = false;
    for (int32_t i = 0; i < c->n_buffers; i++) c->buffers[i].device = device;
    kv_graph_init(&g);
    kv_tensor *out = gen->build(c, &g);
    if (kv_plan_create(&plan, &g, &device, 1)) fail_msg("%s: %s: %s", where, c->text, kv_last_error());
    for (int run = 0; run < 2; run++) { /* a plan has no memory of its last run */
        reset_written(c);
        if (out) memset(kv_tensor_data(out), 0xff, kv_round_up(kv_tensor_bytes(out), 64));
        assert_int_equal(kv_plan_run(plan, &cancel), KVANT_OK);
        if (out) check_margin(c, gen, out);
    }
    take_written(c, written);
    if (out) {
        out->rows = c->n_compared;
        take(c, bytes, kv_tensor_data(out), kv_tensor_bytes(out));
        compare_numbers(c, gen, where, want, conf_read(c, out), out->cols);
    }
    kv_plan_destroy(plan);
}

static void check_same(const conf_case *c, const conf_generator *gen, const char *what, const result *a,
                       const result *b) {
    if (a->n_bytes != b->n_bytes || (a->n_bytes && memcmp(a->bytes, b->bytes, a->n_bytes)))
        fail_msg("%s: %s: %s", gen->op->name, c->text, what);
}

static void run_case(const conf_generator *gen, int32_t i, int32_t round) {
    conf_case c = {0};
    kv_random_init(&c.random, seed + (uint64_t)((gen - generators) * 1000 + round) * 1000000 + (uint64_t)i);
    gen->make(&c, i);
    result wanted[CASE_WRITTEN] = {0};
    const float *want = run_reference(&c, gen, wanted);
    for (int32_t l = 0; l < n_levels; l++) {
        result bytes[2] = {0}, written[2][CASE_WRITTEN] = {0};
        for (int t = 0; t < 2; t++)
            run_on(&c, gen, levels[l].devices[t], levels[l].name, want, &bytes[t], written[t]);
        check_same(&c, gen, "one thread and three differ", &bytes[0], &bytes[1]);
        for (int w = 0; w < CASE_WRITTEN; w++) {
            check_same(&c, gen, "cells differ from the reference's", &wanted[w], &written[0][w]);
            check_same(&c, gen, "cells differ from the reference's", &wanted[w], &written[1][w]);
        }
    }
    conf_clear(&c);
}

static const conf_generator *generator_of(const kv_op *op) {
    for (int i = 0; i < N_GENERATORS; i++)
        if (generators[i].op == op) return &generators[i];
    return NULL;
}

static void test_every_op_has_cases(void **state) {
    (void)state;
    for (int32_t i = 0; i < kv_op_count(); i++)
        if (!generator_of(kv_op_at(i))) fail_msg("op %s has no generator of cases", kv_op_at(i)->name);
    assert_int_equal(kv_op_count(), N_GENERATORS);
}

static void refuses(const kv_graph *g, const char *what, const kv_layout *l) {
    char message[100];
    snprintf(message, sizeof message, "%s is f32 in layout %s, expected plain floats", what, l->name);
    assert_int_equal(g->status, KVANT_INVALID);
    assert_non_null(strstr(kv_last_error(), message));
}

/* What an op reads as rows of floats is refused in any other layout: nothing is read by its size alone. */
static void test_packed_inputs_are_refused(void **state) {
    (void)state;
    for (int32_t i = 0; i < kv_layout_count(); i++) {
        const kv_layout *l = kv_layout_at(i);
        if (l->tile == 1) continue;
        conf_case c = {0};
        kv_graph g[4];
        const conf_kept kept = {&kv_dtype_q8_0, l, 64, false};
        kv_rope none = {.magnitude = 1};
        kv_store *s = conf_store(&c, &kept, &kept, 64, 2);
        kv_batch_view batch = {0};
        kv_cache_write_params write = {&none, s, &batch};
        kv_attend_params attend = {.rope = &none, .store = s, .batch = &batch, .n_heads = 2, .scale = 1};
        kv_tensor *packed = conf_normal(&c, KV_FLOAT, l, 5, 128, 1), *plain = conf_floats(&c, 5, 128, 1);
        for (int k = 0; k < 4; k++) kv_graph_init(&g[k]);
        kv_cache_write(&g[0], &write, packed, plain, NULL);
        refuses(&g[0], "k", l);
        kv_cache_write(&g[1], &write, plain, packed, NULL);
        refuses(&g[1], "v", l);
        kv_attend(&g[2], &attend, packed, NULL, KV_FLOAT);
        refuses(&g[2], "q", l);
        kv_norm(&g[3], &(kv_norm_params){.eps = 1, .width = 128}, packed, conf_floats(&c, 1, 128, 1), NULL,
                KV_FLOAT);
        refuses(&g[3], "x", l);
        for (int k = 0; k < 4; k++) kv_graph_clear(&g[k]);
        conf_clear(&c);
    }
}

static void test_op(void **state) {
    const conf_generator *gen = *state;
    int32_t n = gen->count ? gen->count() : gen->n_cases;
    worst = 0;
    for (int32_t r = 0; r < rounds; r++)
        for (int32_t i = 0; i < n; i++) run_case(gen, i, r);
    print_message("  %s: %d cases, worst error %.2f of its bound\n", gen->op->name, n * rounds, worst);
}

int main(void) {
    const char *text = getenv("KVANT_SEED");
    seed = text ? strtoull(text, NULL, 0) : (uint64_t)kv_now_ns();
    if (getenv("KVANT_ROUNDS")) rounds = atoi(getenv("KVANT_ROUNDS"));
    fprintf(stderr, "KVANT_SEED=%llu\n", (unsigned long long)seed);
    enum { N_OTHERS = 2 };
    struct CMUnitTest tests[N_OTHERS + N_GENERATORS] = {cmocka_unit_test(test_every_op_has_cases),
                                                        cmocka_unit_test(test_packed_inputs_are_refused)};
    for (int i = 0; i < N_GENERATORS; i++)
        tests[N_OTHERS + i] = (struct CMUnitTest){.name = generators[i].op->name,
                                                  .test_func = test_op,
                                                  .initial_state = (void *)(uintptr_t)&generators[i]};
    return cmocka_run_group_tests_name("conformance", tests, open_devices, close_devices);
}
