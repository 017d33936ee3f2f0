/* model_devices.c: the devices that a model is opened on: their names, their threads, their shares of the
 * layers.
 */
#include "base/cpu.h"
#include "device/registry.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

/* Calls `take` with each item of "a,b,c". */
static kv_status for_each_item(const char *list, kv_status (*take)(kvant_model *m, const char *item),
                               kvant_model *m) {
    for (const char *at = list;;) {
        char item[32];
        size_t n = strcspn(at, ",");
        if (n >= sizeof item) return kv_fail(KVANT_INVALID, "\"%s\": an item of %zu characters", list, n);
        memcpy(item, at, n);
        item[n] = 0;
        KV_TRY(take(m, item));
        if (!at[n]) return KVANT_OK;
        at += n + 1;
    }
}

/* ---- devices ---- */

static kv_status add_name(kvant_model *m, const char *name) {
    kv_device_place *p = &m->places[m->n_devices];
    KV_TRY(kv_device_find(&p->kind, &p->index, name));
    for (int32_t i = 0; i < m->n_devices; i++)
        if (m->places[i].kind == p->kind && m->places[i].index == p->index)
            return kv_fail(KVANT_INVALID, "device \"%s\" is listed twice", name);
    if (m->n_devices + 1 == KV_MAX_DEVICES)
        return kv_fail(KVANT_INVALID, "more than %d devices", KV_MAX_DEVICES - 1);
    m->n_devices++;
    return KVANT_OK;
}

/* Threads are divided in order, the first devices getting those that are left over; one each at least. */
static kv_status open_device(kvant_model *m, int32_t i, int32_t n_threads, unsigned cpu) {
    int32_t share = n_threads / m->n_devices + (i < n_threads % m->n_devices);
    kv_device_options o = {.n_threads = share > 0 ? share : 1, .cpu = cpu};
    return m->places[i].kind->open(&m->devices[i], m->places[i].index, &o);
}

/* ---- split ---- */

static kv_status add_share(kvant_model *m, const char *text) {
    char *end;
    long share = strtol(text, &end, 10);
    if (end == text || *end || share < 0 || share > 1000000)
        return kv_fail(KVANT_INVALID, "share \"%s\": must be a number from 0 to 1000000", text);
    if (m->n_shares == m->n_devices)
        return kv_fail(KVANT_INVALID, "more shares than the %d devices", m->n_devices);
    m->shares[m->n_shares++] = (int32_t)share;
    return KVANT_OK;
}

static kv_status read_split(kvant_model *m, const char *split) {
    int64_t total = 0;
    if (!split) return KVANT_OK;
    KV_TRY(for_each_item(split, add_share, m));
    if (m->n_shares != m->n_devices)
        return kv_fail(KVANT_INVALID, "%d shares for %d devices", m->n_shares, m->n_devices);
    for (int32_t i = 0; i < m->n_shares; i++) total += m->shares[i];
    return total ? KVANT_OK : kv_fail(KVANT_INVALID, "no device has a share");
}

/* ---- for models and sessions ---- */

kv_status kv_model_open_devices(kvant_model *m, const kvant_model_options *o, int32_t n_threads) {
    unsigned cpu;
    KV_TRY(kv_cpu_mask(&cpu, o->cpu_mask));
    kv_status status = for_each_item(o->devices ? o->devices : "cpu:0", add_name, m);
    if (status) return kv_fail_in(status, "devices");
    status = read_split(m, o->split);
    if (status) return kv_fail_in(status, "split \"%s\"", o->split);
    for (int32_t i = 0; i < m->n_devices; i++) KV_TRY(open_device(m, i, n_threads, cpu));
    return KVANT_OK;
}

void kv_model_close_devices(kvant_model *m) {
    for (int32_t i = 0; i < m->n_devices; i++)
        if (m->devices[i]) m->devices[i]->destroy(m->devices[i]);
}

kv_status kv_model_device(const kvant_model *m, kv_device **out, const char *name) {
    const kv_device_kind *kind;
    int32_t index;
    KV_TRY(kv_device_find(&kind, &index, name));
    for (int32_t i = 0; i < m->n_devices; i++)
        if (m->places[i].kind == kind && m->places[i].index == index) {
            *out = m->devices[i];
            return KVANT_OK;
        }
    char open[256] = "";
    for (int32_t i = 0; i < m->n_devices && strlen(open) + 20 < sizeof open; i++) {
        if (i) strcat(open, ", ");
        strcat(open, m->devices[i]->name);
    }
    return kv_fail(KVANT_INVALID, "device \"%s\": the model is on %s", name, open);
}
