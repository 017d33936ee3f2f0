/* gguf_rules.c: what the format allows: names, alignment, shapes. The reader and the writer ask here. */
#include "gguf/gguf_internal.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[KV_GGUF_N_TYPES] = {
    [KV_GGUF_U8] = {"u8", 1},       [KV_GGUF_I8] = {"i8", 1},     [KV_GGUF_U16] = {"u16", 2},
    [KV_GGUF_I16] = {"i16", 2},     [KV_GGUF_U32] = {"u32", 4},   [KV_GGUF_I32] = {"i32", 4},
    [KV_GGUF_F32] = {"f32", 4},     [KV_GGUF_BOOL] = {"bool", 1}, [KV_GGUF_STRING] = {"string", 0},
    [KV_GGUF_ARRAY] = {"array", 0}, [KV_GGUF_U64] = {"u64", 8},   [KV_GGUF_I64] = {"i64", 8},
    [KV_GGUF_F64] = {"f64", 8},
};

const char *kv_gguf_type_name(kv_gguf_type type) { return types[type].name; }

size_t kv_gguf_type_bytes(kv_gguf_type type) { return types[type].bytes; }

kv_gguf_shown kv_gguf_show(const char *name, size_t size) {
    enum { MAX_SHOWN = 80 };
    kv_gguf_shown shown;
    size_t n = size < MAX_SHOWN ? size : MAX_SHOWN;
    for (size_t i = 0; i < n; i++) shown.text[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
    memcpy(shown.text + n, n < size ? "..." : "", n < size ? 4 : 1);
    return shown;
}

static kv_status check_name(const char *what, const char *name, size_t size, size_t limit) {
    if (size == 0) return kv_fail(KVANT_FORMAT, "%s name is empty", what);
    if (size > limit)
        return kv_fail(KVANT_FORMAT, "%s name of %zu bytes, more than %zu: %s", what, size, limit,
                       kv_gguf_show(name, size).text);
    if (memchr(name, 0, size))
        return kv_fail(KVANT_FORMAT, "%s name with a NUL byte: %s", what, kv_gguf_show(name, size).text);
    return KVANT_OK;
}

kv_status kv_gguf_check_key(const char *key, size_t size) {
    return check_name("key", key, size, KV_GGUF_MAX_KEY);
}

kv_status kv_gguf_check_tensor_name(const char *name, size_t size) {
    return check_name("tensor", name, size, KV_GGUF_MAX_TENSOR_NAME);
}

kv_status kv_gguf_check_alignment(int64_t alignment) {
    if (alignment < 8 || alignment > KV_GGUF_MAX_ALIGNMENT || (alignment & (alignment - 1)))
        return kv_fail(KVANT_FORMAT, "key general.alignment: %lld, not a power of two from 8 to %d",
                       (long long)alignment, KV_GGUF_MAX_ALIGNMENT);
    return KVANT_OK;
}

kv_status kv_gguf_tensor_size(size_t *bytes, const char *name, const kv_dtype *dtype, int32_t n_dims,
                              const int64_t *dims) {
    kv_gguf_shown label = kv_gguf_show(name, strlen(name));
    const char *shown = label.text;
    size_t blocks = 1;
    bool fits = true;
    for (int32_t i = 0; i < n_dims; i++) {
        if (dims[i] < 1 || dims[i] > KV_GGUF_MAX_DIM)
            return kv_fail(KVANT_FORMAT, "tensor %s: dimension %d is %lld, not from 1 to 2^40", shown, i,
                           (long long)dims[i]);
        fits = fits && kv_mul_size(&blocks, blocks, (size_t)(i ? dims[i] : dims[0] / dtype->block_elems));
    }
    if (dims[0] % dtype->block_elems)
        return kv_fail(KVANT_FORMAT, "tensor %s: %lld columns, not a multiple of %d (%s block)", shown,
                       (long long)dims[0], dtype->block_elems, dtype->name);
    if (!fits || !kv_mul_size(bytes, blocks, (size_t)dtype->block_bytes) || *bytes > PTRDIFF_MAX)
        return kv_fail(KVANT_FORMAT, "tensor %s: more than 2^63 bytes", shown);
    return KVANT_OK;
}
