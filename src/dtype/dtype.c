/* dtype.c: the registry, made from dtypes.inc. */
#include "dtype/dtype.h"

#include <string.h>

static const kv_dtype *const registry[] = {
#define KV_DTYPE(name) &kv_dtype_##name,
#include "dtype/dtypes.inc"
#undef KV_DTYPE
};

int32_t kv_dtype_count(void) { return (int32_t)(sizeof registry / sizeof *registry); }

const kv_dtype *kv_dtype_at(int32_t i) { return registry[i]; }

const kv_dtype *kv_dtype_by_name(const char *name) {
    for (int32_t i = 0; i < kv_dtype_count(); i++)
        if (strcmp(registry[i]->name, name) == 0) return registry[i];
    return NULL;
}

const kv_dtype *kv_dtype_by_gguf_id(int32_t id) {
    for (int32_t i = 0; i < kv_dtype_count(); i++)
        if (id >= 0 && registry[i]->gguf_id == id) return registry[i];
    return NULL;
}
