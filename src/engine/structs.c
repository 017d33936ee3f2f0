/* structs.c: structs that grow: each begins with the size its owner was compiled with. */
#include "engine/engine.h"

#include <string.h>

kv_status kv_take_struct(void *dst, size_t dst_size, const void *src, const char *name) {
    if (!src) return KVANT_OK;
    size_t size;
    memcpy(&size, src, sizeof size);
    if (size < sizeof size)
        return kv_fail(KVANT_INVALID, "%s.size is %zu: set the struct up with its _INIT macro", name, size);
    memcpy(dst, src, size < dst_size ? size : dst_size);
    memcpy(dst, &dst_size, sizeof dst_size);
    return KVANT_OK;
}

void kv_give_struct(void *dst, const void *src, size_t src_size) {
    size_t size;
    memcpy(&size, dst, sizeof size);
    if (size > sizeof size)
        memcpy((char *)dst + sizeof size, (const char *)src + sizeof size,
               (size < src_size ? size : src_size) - sizeof size);
}
