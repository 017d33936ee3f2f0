/* tools_check.c: the kernels' own checks, as the public API gives them out. */
#include "device/cpu/kernel_check.h"
#include "engine/engine.h"
#include "kvant_tools.h"

#include <stdio.h>
#include <string.h>

typedef struct check {
    kvant_check_options options;
    kvant_check_result result;
} check;

static void give_out(const check *c, const kv_kernel *k, kvant_kernel_report report) {
    report.size = sizeof report;
    report.name = k->name;
    report.role = kv_role_name(k->role);
    report.cpu = kv_cpu_name(k->cpu);
    if (c->options.report) c->options.report(c->options.user, &report);
}

static void on_speed(void *user, const kv_check_result *r) {
    give_out(user, r->kernel,
             (kvant_kernel_report){.message = "",
                                   .shape = r->shape,
                                   .seconds = r->seconds,
                                   .gb_per_s = r->gb_per_s,
                                   .gmac_per_s = r->gmac_per_s});
}

static kv_status check_kernel(check *c, const kv_kernel *k) {
    kv_check_result r;
    KV_TRY(kv_kernel_check(&r, k, c->options.seed));
    *(r.passed ? &c->result.n_ok : &c->result.n_failed) += 1;
    give_out(c, k,
             (kvant_kernel_report){.outcome = r.passed ? KVANT_KERNEL_OK : KVANT_KERNEL_FAILED,
                                   .message = r.fault,
                                   .worst = r.worst,
                                   .shape = ""});
    return c->options.bench ? kv_kernel_bench(k, c->options.seed, on_speed, c) : KVANT_OK;
}

static void skip_kernel(check *c, const kv_kernel *k) {
    char message[64];
    snprintf(message, sizeof message, "needs %s", kv_cpu_name(k->cpu));
    c->result.n_skipped++;
    give_out(c, k, (kvant_kernel_report){.outcome = KVANT_KERNEL_SKIPPED, .message = message, .shape = ""});
}

static bool is_wanted(const kv_kernel *k, const char *filter) {
    return !filter || strstr(k->name, filter) || strstr(kv_role_name(k->role), filter);
}

kvant_status kvant_check_kernels(const kvant_check_options *options, kvant_check_result *result) {
    check c = {.options = KVANT_CHECK_OPTIONS_INIT};
    unsigned cpu;
    KV_TRY(kv_take_struct(&c.options, sizeof c.options, options, "kvant_check_options"));
    KV_TRY(kv_cpu_mask(&cpu, c.options.cpu_mask));
    for (int32_t i = 0; i < kv_kernel_count(); i++) {
        const kv_kernel *k = kv_kernel_at(i);
        if (!is_wanted(k, c.options.filter)) continue;
        if ((k->cpu & cpu) != k->cpu)
            skip_kernel(&c, k);
        else
            KV_TRY(check_kernel(&c, k));
    }
    if (result) kv_give_struct(result, &c.result, sizeof c.result);
    return KVANT_OK;
}
