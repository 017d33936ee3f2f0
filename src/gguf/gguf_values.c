/* gguf_values.c: typed getters. Numbers of any width are taken where the value fits; what does not is an
 * error that names the key, the value and what was expected. */
#include "gguf/gguf_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static kv_gguf_shown shown(const kv_gguf_value *v) { return kv_gguf_show(v->key, strlen(v->key)); }

static kv_status wrong_type(const kv_gguf_value *v, const char *expected) {
    bool array = v->type == KV_GGUF_ARRAY;
    return kv_fail(KVANT_FORMAT, "key %s: %s%s, not %s", shown(v).text, array ? "array of " : "",
                   kv_gguf_type_name(array ? v->element : v->type), expected);
}

/* *out = the value to look at, NULL when it is absent and need not be there. */
static kv_status find(const kv_gguf_value **out, const kv_gguf *g, const char *key, kv_gguf_need need) {
    *out = kv_gguf_find(g, key);
    return *out || need == KV_GGUF_OPTIONAL ? KVANT_OK : kv_fail(KVANT_FORMAT, "key %s: missing", key);
}

/* The same for an array; another type is an error. */
static kv_status find_array(const kv_gguf_value **out, const kv_gguf *g, const char *key, kv_gguf_need need,
                            const char *expected) {
    KV_TRY(find(out, g, key, need));
    return !*out || (*out)->type == KV_GGUF_ARRAY ? KVANT_OK : wrong_type(*out, expected);
}

/* ---- one number ---- */

typedef struct number {
    bool is_integer, is_float;
    bool negative; /* integers: sign and magnitude, so that both 64-bit types fit */
    uint64_t magnitude;
    double real;
} number;

static number integer(int64_t i) {
    return (number){
        .is_integer = true, .negative = i < 0, .magnitude = i < 0 ? 0 - (uint64_t)i : (uint64_t)i};
}

static number load(kv_gguf_type type, const uint8_t *p) {
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
    } raw;
    memcpy(&raw, p, kv_gguf_type_bytes(type));
    switch (type) {
    case KV_GGUF_BOOL:
    case KV_GGUF_U8: return integer(raw.u8);
    case KV_GGUF_I8: return integer(raw.i8);
    case KV_GGUF_U16: return integer(raw.u16);
    case KV_GGUF_I16: return integer(raw.i16);
    case KV_GGUF_U32: return integer(raw.u32);
    case KV_GGUF_I32: return integer(raw.i32);
    case KV_GGUF_U64: return (number){.is_integer = true, .magnitude = raw.u64};
    case KV_GGUF_I64: return integer(raw.i64);
    case KV_GGUF_F32: return (number){.is_float = true, .real = (double)raw.f32};
    case KV_GGUF_F64: return (number){.is_float = true, .real = raw.f64};
    default: return (number){0};
    }
}

static kv_status number_integer(int64_t *out, const kv_gguf_value *v, number n, int64_t min, int64_t max) {
    bool fits = n.negative ? n.magnitude <= (uint64_t)INT64_MAX + 1 : n.magnitude <= INT64_MAX;
    int64_t i = !fits ? 0 : n.negative ? (int64_t)(0 - n.magnitude) : (int64_t)n.magnitude;
    if (!fits || i < min || i > max)
        return kv_fail(KVANT_FORMAT, "key %s: %s%" PRIu64 ", not from %" PRId64 " to %" PRId64, shown(v).text,
                       n.negative ? "-" : "", n.magnitude, min, max);
    *out = i;
    return KVANT_OK;
}

static kv_status number_float(float *out, const kv_gguf_value *v, number n) {
    float x = (float)n.real;
    if (!isfinite(x))
        return kv_fail(KVANT_FORMAT, "key %s: %g, not a finite number of 32 bits", shown(v).text, n.real);
    *out = x;
    return KVANT_OK;
}

kv_status kv_gguf_value_integer(int64_t *out, const kv_gguf_value *v, int64_t min, int64_t max) {
    number n = v->type == KV_GGUF_BOOL ? (number){0} : load(v->type, v->data);
    return n.is_integer ? number_integer(out, v, n, min, max) : wrong_type(v, "an integer");
}

kv_status kv_gguf_get_i32(const kv_gguf *g, const char *key, kv_gguf_need need, int32_t *out) {
    const kv_gguf_value *v;
    int64_t i = 0;
    KV_TRY(find(&v, g, key, need));
    if (!v) return KVANT_OK;
    KV_TRY(kv_gguf_value_integer(&i, v, INT32_MIN, INT32_MAX));
    *out = (int32_t)i;
    return KVANT_OK;
}

kv_status kv_gguf_get_f32(const kv_gguf *g, const char *key, kv_gguf_need need, float *out) {
    const kv_gguf_value *v;
    KV_TRY(find(&v, g, key, need));
    if (!v) return KVANT_OK;
    number n = load(v->type, v->data);
    return n.is_float ? number_float(out, v, n) : wrong_type(v, "a float");
}

kv_status kv_gguf_get_bool(const kv_gguf *g, const char *key, kv_gguf_need need, bool *out) {
    const kv_gguf_value *v;
    KV_TRY(find(&v, g, key, need));
    if (!v) return KVANT_OK;
    if (v->type != KV_GGUF_BOOL) return wrong_type(v, "a bool");
    *out = *v->data;
    return KVANT_OK;
}

/* ---- strings ---- */

/* The string encoded at p; the parser has checked its length. */
static kv_gguf_string load_string(const uint8_t *p) {
    uint64_t size;
    memcpy(&size, p, sizeof size);
    return (kv_gguf_string){(const char *)p + sizeof size, (size_t)size};
}

kv_status kv_gguf_get_string(const kv_gguf *g, const char *key, kv_gguf_need need, kv_gguf_string *out) {
    const kv_gguf_value *v;
    KV_TRY(find(&v, g, key, need));
    if (!v) return KVANT_OK;
    if (v->type != KV_GGUF_STRING) return wrong_type(v, "a string");
    *out = load_string(v->data);
    return KVANT_OK;
}

kv_status kv_gguf_get_string_array(const kv_gguf *g, const char *key, kv_gguf_need need, kv_gguf_string **out,
                                   size_t *n) {
    const kv_gguf_value *v;
    KV_TRY(find_array(&v, g, key, need, "an array of strings"));
    kv_gguf_string *strings = NULL;
    if (v) {
        if (v->element != KV_GGUF_STRING) return wrong_type(v, "an array of strings");
        strings = kv_alloc(v->count, sizeof *strings);
        if (!strings) return KVANT_NO_MEMORY;
        const uint8_t *p = v->data;
        for (uint64_t i = 0; i < v->count; i++) {
            strings[i] = load_string(p);
            p += 8 + strings[i].size;
        }
    }
    *out = strings;
    *n = v ? v->count : 0;
    return KVANT_OK;
}

/* ---- arrays of numbers ---- */

kv_status kv_gguf_get_i32_array(const kv_gguf *g, const char *key, kv_gguf_need need, int32_t **out,
                                size_t *n) {
    const kv_gguf_value *v;
    KV_TRY(find_array(&v, g, key, need, "an array of integers"));
    int32_t *items = NULL;
    if (v) {
        size_t item = kv_gguf_type_bytes(v->element);
        if (!item || v->element == KV_GGUF_F32 || v->element == KV_GGUF_F64)
            return wrong_type(v, "an array of integers");
        items = kv_alloc(v->count, sizeof *items);
        if (!items) return KVANT_NO_MEMORY;
        for (uint64_t i = 0; i < v->count; i++) {
            int64_t x = 0;
            kv_status status =
                number_integer(&x, v, load(v->element, v->data + i * item), INT32_MIN, INT32_MAX);
            if (status) {
                kv_free(items);
                return kv_fail_in(status, "item %" PRIu64, i);
            }
            items[i] = (int32_t)x;
        }
    }
    *out = items;
    *n = v ? v->count : 0;
    return KVANT_OK;
}

kv_status kv_gguf_get_f32_array(const kv_gguf *g, const char *key, kv_gguf_need need, float **out,
                                size_t *n) {
    const kv_gguf_value *v;
    KV_TRY(find_array(&v, g, key, need, "an array of floats"));
    float *items = NULL;
    if (v) {
        size_t item = kv_gguf_type_bytes(v->element);
        if (v->element != KV_GGUF_F32 && v->element != KV_GGUF_F64)
            return wrong_type(v, "an array of floats");
        items = kv_alloc(v->count, sizeof *items);
        if (!items) return KVANT_NO_MEMORY;
        for (uint64_t i = 0; i < v->count; i++) {
            kv_status status = number_float(items + i, v, load(v->element, v->data + i * item));
            if (status) {
                kv_free(items);
                return kv_fail_in(status, "item %" PRIu64, i);
            }
        }
    }
    *out = items;
    *n = v ? v->count : 0;
    return KVANT_OK;
}
