/* registry.c: kinds of devices, and names of devices. */
#include "device/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const kv_device_kind *const kinds[] = {
#define KV_DEVICE_KIND(name) &kv_device_kind_##name,
#include "device/devices.inc"
#undef KV_DEVICE_KIND
};

int32_t kv_device_kind_count(void) { return (int32_t)(sizeof kinds / sizeof *kinds); }

const kv_device_kind *kv_device_kind_at(int32_t i) { return kinds[i]; }

/* "cpu:0 to cpu:7, ..." */
static void list_devices(char *text, size_t capacity) {
    size_t at = 0;
    for (int32_t i = 0; i < kv_device_kind_count() && at < capacity; i++) {
        const char *name = kinds[i]->name;
        int32_t n = kinds[i]->count();
        if (n > 1)
            at += (size_t)snprintf(text + at, capacity - at, "%s%s:0 to %s:%d", at ? ", " : "", name, name,
                                   n - 1);
        else if (n)
            at += (size_t)snprintf(text + at, capacity - at, "%s%s:0", at ? ", " : "", name);
    }
}

static bool parse_index(const char *text, int32_t *index) {
    char *end;
    long number = strtol(text, &end, 10);
    *index = number >= 0 && number < KV_MAX_DEVICES ? (int32_t)number : -1;
    return *text >= '0' && *text <= '9' && !*end && *index >= 0;
}

kv_status kv_device_find(const kv_device_kind **kind, int32_t *index, const char *name) {
    const char *colon = strchr(name, ':');
    size_t n = colon ? (size_t)(colon - name) : strlen(name);
    *index = 0;
    bool numbered = !colon || parse_index(colon + 1, index);
    for (int32_t i = 0; numbered && i < kv_device_kind_count(); i++) {
        *kind = kinds[i];
        if (strlen(kinds[i]->name) == n && !strncmp(kinds[i]->name, name, n) && *index < kinds[i]->count())
            return KVANT_OK;
    }
    char known[256] = "none";
    list_devices(known, sizeof known);
    return kv_fail(KVANT_INVALID, "device \"%s\": there is %s", name, known);
}
