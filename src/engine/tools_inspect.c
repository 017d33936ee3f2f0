/* tools_inspect.c: a GGUF file as its reader sees it, with the values written out, and what the CPU device
 * would do with its tensors. A kvant_file is the reader itself. */
#include "base/memory.h"
#include "device/cpu/kernel.h"
#include "engine/engine.h"
#include "gguf/gguf.h"
#include "kvant_tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static kvant_file *to_file(kv_gguf *g) { return (kvant_file *)g; }
static const kv_gguf *to_gguf(const kvant_file *file) { return (const kv_gguf *)file; }

kvant_status kvant_file_open(kvant_file **out, const char *path) {
    kv_gguf *g = NULL;
    KV_TRY(kv_gguf_open(&g, path));
    *out = to_file(g);
    return KVANT_OK;
}

void kvant_file_close(kvant_file *file) { kv_gguf_close((kv_gguf *)file); }

void kvant_file_get_info(const kvant_file *file, kvant_file_info *info) {
    const kv_gguf *g = to_gguf(file);
    kvant_file_info i = {.version = kv_gguf_version(g),
                         .n_values = kv_gguf_n_values(g),
                         .n_tensors = kv_gguf_n_tensors(g),
                         .n_bytes = (int64_t)kv_gguf_file_bytes(g)};
    for (int64_t n = 0; n < i.n_tensors; n++) {
        const kv_gguf_tensor *t = kv_gguf_tensor_at(g, n);
        i.n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        i.tensor_bytes += (int64_t)t->bytes;
    }
    kv_give_struct(info, &i, sizeof i);
}

/* ---- values ---- */

static kv_status value_at(const kv_gguf_value **out, const kvant_file *file, int64_t i) {
    int64_t n = kv_gguf_n_values(to_gguf(file));
    if (i < 0 || i >= n)
        return kv_fail(KVANT_INVALID, "value %" PRId64 " is outside 0 to %" PRId64, i, n - 1);
    *out = kv_gguf_value_at(to_gguf(file), i);
    return KVANT_OK;
}

kvant_status kvant_file_get_value(const kvant_file *file, int64_t i, kvant_file_value *value) {
    const kv_gguf_value *v = NULL;
    KV_TRY(value_at(&v, file, i));
    bool is_array = v->type == KV_GGUF_ARRAY;
    kvant_file_value given = {.key = v->key,
                              .type = kv_gguf_type_name(is_array ? v->element : v->type),
                              .is_array = is_array,
                              .count = is_array ? (int64_t)v->count : 1};
    kv_give_struct(value, &given, sizeof given);
    return KVANT_OK;
}

int64_t kvant_file_find_value(const kvant_file *file, const char *key) {
    for (int64_t i = 0; i < kv_gguf_n_values(to_gguf(file)); i++)
        if (strcmp(kv_gguf_value_at(to_gguf(file), i)->key, key) == 0) return i;
    return -1;
}

/* Text that is counted whole and kept as far as there is room. */
typedef struct sink {
    char *at;
    size_t capacity, n;
} sink;

static void put(sink *s, const char *text, size_t n) {
    if (s->n < s->capacity) memcpy(s->at + s->n, text, n < s->capacity - s->n ? n : s->capacity - s->n);
    s->n += n;
}

static void put_number(sink *s, kv_gguf_type type, const uint8_t *data) {
    char text[48];
    int64_t integer = 0;
    double real = 0;
    float single = 0;
    size_t bytes = kv_gguf_type_bytes(type);
    if (type == KV_GGUF_F32)
        memcpy(&single, data, sizeof single);
    else if (type == KV_GGUF_F64)
        memcpy(&real, data, sizeof real);
    else
        memcpy(&integer, data, bytes); /* little endian; the sign follows */
    bool is_signed = type == KV_GGUF_I8 || type == KV_GGUF_I16 || type == KV_GGUF_I32;
    if (is_signed) integer = (int64_t)((uint64_t)integer << (64 - 8 * bytes)) >> (64 - 8 * bytes);
    int n = type == KV_GGUF_F32    ? snprintf(text, sizeof text, "%.9g", (double)single)
            : type == KV_GGUF_F64  ? snprintf(text, sizeof text, "%.17g", real)
            : type == KV_GGUF_BOOL ? snprintf(text, sizeof text, "%s", integer ? "true" : "false")
            : type == KV_GGUF_U64  ? snprintf(text, sizeof text, "%" PRIu64, (uint64_t)integer)
                                   : snprintf(text, sizeof text, "%" PRId64, integer);
    put(s, text, (size_t)n);
}

/* Writes one value and returns the encoded bytes it took: a string is its length in 8 bytes, then its text.
 */
static size_t put_value(sink *s, kv_gguf_type type, const uint8_t *data, bool quoted) {
    if (type != KV_GGUF_STRING) {
        put_number(s, type, data);
        return kv_gguf_type_bytes(type);
    }
    uint64_t n;
    memcpy(&n, data, sizeof n);
    put(s, "\"", quoted ? 1 : 0);
    put(s, (const char *)data + sizeof n, (size_t)n);
    put(s, "\"", quoted ? 1 : 0);
    return sizeof n + (size_t)n;
}

kvant_status kvant_file_value_text(const kvant_file *file, int64_t i, int64_t max_items, char *text,
                                   size_t capacity, size_t *n_bytes) {
    const kv_gguf_value *v = NULL;
    KV_TRY(value_at(&v, file, i));
    if (!capacity) return kv_fail(KVANT_INVALID, "no room for the text of %s", v->key);
    sink s = {text, capacity, 0};
    bool is_array = v->type == KV_GGUF_ARRAY;
    const uint8_t *data = v->data;
    for (uint64_t item = 0; item < v->count && (!is_array || (int64_t)item < max_items); item++) {
        put(&s, ", ", item ? 2 : 0);
        data += put_value(&s, is_array ? v->element : v->type, data, is_array);
    }
    size_t end = s.n < capacity ? s.n : capacity - 1;
    while (end && end < s.n && ((unsigned char)text[end] & 0xc0) == 0x80) end--;
    text[end] = 0;
    if (n_bytes) *n_bytes = s.n;
    return KVANT_OK;
}

/* ---- tensors ---- */

kvant_status kvant_file_get_tensor(const kvant_file *file, int64_t i, kvant_file_tensor *tensor) {
    int64_t n = kv_gguf_n_tensors(to_gguf(file));
    if (i < 0 || i >= n)
        return kv_fail(KVANT_INVALID, "tensor %" PRId64 " is outside 0 to %" PRId64, i, n - 1);
    const kv_gguf_tensor *t = kv_gguf_tensor_at(to_gguf(file), i);
    kvant_file_tensor given = {
        .name = t->name, .type = t->dtype->name, .n_dims = t->n_dims, .n_bytes = (int64_t)t->bytes};
    memcpy(given.dims, t->dims, sizeof given.dims);
    kv_give_struct(tensor, &given, sizeof given);
    return KVANT_OK;
}

/* As the device's matrix product chooses: activations in 8 bits where the weights allow it; a tile at a time
 * decoded to f32 where no kernel reads them as they are. */
static const char *kernel_for(const kv_dtype *weights, const kv_layout *layout, unsigned cpu) {
    const kv_dtype *activations = weights->act_8bit ? &kv_dtype_a8 : &kv_dtype_f32;
    const kv_kernel *k = kv_kernel_pick(KV_ROLE_matmul, weights, activations, layout, cpu);
    return k ? k->name : kv_kernel_pick(KV_ROLE_panel, NULL, NULL, NULL, cpu)->name;
}

kvant_status kvant_get_weight_plan(kvant_weight_plan *plan, const char *type, const char *cpu_mask) {
    const kv_dtype *dtype = kv_dtype_by_name(type);
    if (!dtype) return kv_fail(KVANT_INVALID, "no type '%s'", type);
    unsigned cpu;
    KV_TRY(kv_cpu_mask(&cpu, cpu_mask));
    kv_device *device = NULL;
    KV_TRY(kv_cpu_device_create(&device, 0, 1, cpu));
    const kv_layout *layout = device->weight_layout(device, dtype);
    device->destroy(device);
    kvant_weight_plan given = {
        .device = "cpu", .layout = layout->name, .kernel = kernel_for(dtype, layout, cpu)};
    kv_give_struct(plan, &given, sizeof given);
    return KVANT_OK;
}
