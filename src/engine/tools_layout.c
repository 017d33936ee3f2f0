/* tools_layout.c: the check of a layout, as the public API gives it out: each law over every type that a
 * cache can have, then the times. */
#include "base/cpu.h"
#include "engine/engine.h"
#include "engine/layout_laws.h"
#include "kvant_tools.h"

static kv_status check_law(kv_law_result *r, const kv_law *law, const kv_layout *l, unsigned cpu,
                           uint64_t seed) {
    *r = (kv_law_result){.holds = true};
    for (int32_t i = 0; i < kv_dtype_count(); i++)
        if (kv_dtype_at(i)->caches) KV_TRY(law->check(r, l, kv_dtype_at(i), cpu, seed));
    return KVANT_OK;
}

static kv_status check_laws(kvant_layout_result *out, const kv_layout *l, const kvant_layout_check *check,
                            unsigned cpu) {
    for (int32_t i = 0; i < kv_law_count(); i++) {
        kv_law_result r;
        KV_TRY(check_law(&r, kv_law_at(i), l, cpu, check->seed));
        *(r.holds ? &out->n_holding : &out->n_broken) += 1;
        kvant_law_report report = {.size = sizeof report,
                                   .law = kv_law_at(i)->name,
                                   .holds = r.holds,
                                   .n_cases = r.n_cases,
                                   .message = r.fault};
        if (check->law) check->law(check->user, &report);
    }
    return KVANT_OK;
}

static kv_status time_types(const kv_layout *l, const kvant_layout_check *check, unsigned cpu) {
    for (int32_t i = 0; i < kv_dtype_count(); i++) {
        kvant_layout_speed speed;
        if (!kv_dtype_at(i)->caches) continue;
        KV_TRY(kv_layout_time(&speed, l, kv_dtype_at(i), cpu, check->seed));
        check->speed(check->user, &speed);
    }
    return KVANT_OK;
}

const char *kvant_layout_name(int32_t i) {
    return i >= 0 && i < kv_layout_count() ? kv_layout_at(i)->name : NULL;
}

kvant_status kvant_check_layout(const char *name, const kvant_layout_check *check,
                                kvant_layout_result *result) {
    kvant_layout_check c = KVANT_LAYOUT_CHECK_INIT;
    kvant_layout_result r = KVANT_LAYOUT_RESULT_INIT;
    const kv_layout *l = name ? kv_layout_by_name(name) : NULL;
    unsigned cpu;
    KV_TRY(kv_take_struct(&c, sizeof c, check, "kvant_layout_check"));
    KV_TRY(kv_cpu_mask(&cpu, c.cpu_mask));
    if (!l) return kv_fail(KVANT_NOT_FOUND, "layout \"%s\": there is none of that name", name ? name : "");
    KV_TRY(check_laws(&r, l, &c, cpu));
    if (c.speed) KV_TRY(time_types(l, &c, cpu));
    if (result) kv_give_struct(result, &r, sizeof r);
    return KVANT_OK;
}
