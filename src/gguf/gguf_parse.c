/* gguf_parse.c: one GGUF file, from bytes to keys and tensors:
 *
 *   "GGUF" | version u32 | tensors u64 | keys u64 | key... | tensor description... | padding | data
 *   key    = name, type u32, value           string = bytes u64, then the bytes
 *   array  = type u32, items u64, item...    tensor = name, dims u32, dim u64..., type u32, offset u64 in
 * data
 *
 * Nothing in the file is believed: each number is checked against the bytes that are left before it is used,
 * memory grows with what has been read and not with what is promised. */
#include "gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct cursor {
    const uint8_t *data;
    size_t size, at;
} cursor;

/* Where a tensor of this file lies, relative to the data. */
typedef struct placement {
    uint64_t offset;
    size_t tensor;
} placement;
typedef KV_VEC(placement) placements;

/* ---- bytes ---- */

static kv_status take(const uint8_t **out, cursor *c, uint64_t n, const char *what) {
    size_t left = c->size - c->at;
    if (n > left)
        return kv_fail(KVANT_FORMAT, "the file ends inside %s: %" PRIu64 " bytes at offset %zu, %zu are left",
                       what, n, c->at, left);
    *out = c->data + c->at;
    c->at += (size_t)n;
    return KVANT_OK;
}

static kv_status take_u32(uint32_t *out, cursor *c, const char *what) {
    const uint8_t *p = NULL;
    KV_TRY(take(&p, c, sizeof *out, what));
    memcpy(out, p, sizeof *out);
    return KVANT_OK;
}

static kv_status take_u64(uint64_t *out, cursor *c, const char *what) {
    const uint8_t *p = NULL;
    KV_TRY(take(&p, c, sizeof *out, what));
    memcpy(out, p, sizeof *out);
    return KVANT_OK;
}

static kv_status take_string(kv_gguf_string *out, cursor *c, const char *what) {
    uint64_t size;
    const uint8_t *p = NULL;
    KV_TRY(take_u64(&size, c, what));
    KV_TRY(take(&p, c, size, what));
    *out = (kv_gguf_string){(const char *)p, (size_t)size};
    return KVANT_OK;
}

/* ---- header ---- */

static kv_status check_magic(const kv_file_map *map) {
    const uint8_t *p = map->data;
    if (map->size == 0) return kv_fail(KVANT_FORMAT, "the file is empty");
    if (map->size < 4 || memcmp(p, "GGUF", 4) != 0) {
        uint8_t start[4] = {0};
        memcpy(start, p, map->size < 4 ? map->size : 4);
        return kv_fail(KVANT_FORMAT, "not a GGUF file: it starts with bytes %02x %02x %02x %02x", start[0],
                       start[1], start[2], start[3]);
    }
    return KVANT_OK;
}

static kv_status check_version(uint32_t version) {
    if (version == 2 || version == 3) return KVANT_OK;
    if (version == 1)
        return kv_fail(KVANT_UNSUPPORTED, "GGUF version 1 is not supported: convert the file to version 3");
    if (version && (version & 0xffff) == 0)
        return kv_fail(KVANT_UNSUPPORTED, "a big-endian GGUF file, only little-endian ones are supported");
    return kv_fail(KVANT_UNSUPPORTED, "GGUF version %" PRIu32 ", only 2 and 3 are supported", version);
}

/* A count of things of at least `min_bytes` each must fit in what is left of the file. */
static kv_status take_count(uint64_t *out, cursor *c, size_t min_bytes, const char *what) {
    KV_TRY(take_u64(out, c, what));
    if (*out > (c->size - c->at) / min_bytes)
        return kv_fail(KVANT_FORMAT, "%s: %" PRIu64 ", more than the %zu bytes left can hold", what, *out,
                       c->size - c->at);
    return KVANT_OK;
}

/* ---- keys ---- */

static kv_status check_bools(const kv_gguf_value *v) {
    for (size_t i = 0; i < v->bytes; i++)
        if (v->data[i] > 1)
            return kv_fail(KVANT_FORMAT, "key %s: a bool of %d, not 0 or 1",
                           kv_gguf_show(v->key, strlen(v->key)).text, v->data[i]);
    return KVANT_OK;
}

/* The value's items, all of one type; sets data and bytes. */
static kv_status take_items(kv_gguf_value *v, cursor *c, kv_gguf_type type) {
    kv_gguf_shown what = kv_gguf_show(v->key, strlen(v->key));
    size_t item = kv_gguf_type_bytes(type), min_bytes = item ? item : 8, start = c->at;
    if (v->count > (c->size - c->at) / min_bytes)
        return kv_fail(KVANT_FORMAT,
                       "key %s: %" PRIu64 " items of type %s, more than the %zu bytes left can hold",
                       what.text, v->count, kv_gguf_type_name(type), c->size - c->at);
    if (item)
        KV_TRY(take(&v->data, c, v->count * item, what.text));
    else
        v->data = c->data + c->at;
    for (uint64_t i = 0; !item && i < v->count; i++) {
        kv_gguf_string string;
        KV_TRY(take_string(&string, c, what.text));
    }
    v->bytes = c->at - start;
    return type == KV_GGUF_BOOL ? check_bools(v) : KVANT_OK;
}

static kv_status take_type(kv_gguf_type *out, cursor *c, const char *key) {
    uint32_t type = 0;
    kv_gguf_shown what = kv_gguf_show(key, strlen(key));
    KV_TRY(take_u32(&type, c, what.text));
    if (type >= KV_GGUF_N_TYPES)
        return kv_fail(KVANT_FORMAT, "key %s: value type %" PRIu32 ", not one of the %d there are", what.text,
                       type, KV_GGUF_N_TYPES);
    *out = (kv_gguf_type)type;
    return KVANT_OK;
}

static kv_status take_array(kv_gguf_value *v, cursor *c) {
    KV_TRY(take_type(&v->element, c, v->key));
    if (v->element == KV_GGUF_ARRAY)
        return kv_fail(KVANT_UNSUPPORTED, "key %s: an array of arrays is not supported",
                       kv_gguf_show(v->key, strlen(v->key)).text);
    KV_TRY(take_u64(&v->count, c, kv_gguf_show(v->key, strlen(v->key)).text));
    return take_items(v, c, v->element);
}

static kv_status take_value(kv_gguf *g, kv_gguf_file *file, cursor *c) {
    kv_gguf_string name;
    kv_gguf_value v = {.count = 1};
    KV_TRY(take_string(&name, c, "the name of a key"));
    KV_TRY(kv_gguf_check_key(name.at, name.size));
    v.key = kv_arena_strndup(&g->names, name.at, name.size);
    if (!v.key) return KVANT_NO_MEMORY;
    if (kv_name_index_find(&file->keys, v.key) >= 0)
        return kv_fail(KVANT_FORMAT, "key %s: there twice", kv_gguf_show(name.at, name.size).text);
    KV_TRY(take_type(&v.type, c, v.key));
    KV_TRY(v.type == KV_GGUF_ARRAY ? take_array(&v, c) : take_items(&v, c, v.type));
    if (!kv_name_index_add(&file->keys, v.key, (int64_t)file->values.count) || !kv_vec_push(&file->values, v))
        return KVANT_NO_MEMORY;
    return KVANT_OK;
}

const kv_gguf_value *kv_gguf_file_find(const kv_gguf_file *file, const char *key) {
    int64_t i = kv_name_index_find(&file->keys, key);
    return i < 0 ? NULL : file->values.at + i;
}

/* ---- tensors ---- */

static kv_status take_dims(kv_gguf_tensor *t, cursor *c, const char *shown) {
    uint32_t n_dims = 0;
    KV_TRY(take_u32(&n_dims, c, shown));
    if (n_dims < 1 || n_dims > 4)
        return kv_fail(KVANT_FORMAT, "tensor %s: %" PRIu32 " dimensions, not from 1 to 4", shown, n_dims);
    t->n_dims = (int32_t)n_dims;
    for (int i = 0; i < 4; i++) {
        uint64_t dim = 1;
        if (i < t->n_dims) KV_TRY(take_u64(&dim, c, shown));
        t->dims[i] = (int64_t)dim;
    }
    return KVANT_OK;
}

static kv_status take_dtype(kv_gguf_tensor *t, cursor *c, const char *shown) {
    uint32_t id = 0;
    KV_TRY(take_u32(&id, c, shown));
    t->dtype = id <= INT32_MAX ? kv_dtype_by_gguf_id((int32_t)id) : NULL;
    return t->dtype ? KVANT_OK
                    : kv_fail(KVANT_UNSUPPORTED, "tensor %s: type %" PRIu32 " is not supported", shown, id);
}

static kv_status take_tensor(kv_gguf *g, placements *placed, cursor *c) {
    kv_gguf_string name;
    kv_gguf_tensor t = {0};
    placement place = {.tensor = g->tensors.count};
    KV_TRY(take_string(&name, c, "the name of a tensor"));
    KV_TRY(kv_gguf_check_tensor_name(name.at, name.size));
    t.name = kv_arena_strndup(&g->names, name.at, name.size);
    if (!t.name) return KVANT_NO_MEMORY;
    kv_gguf_shown shown = kv_gguf_show(name.at, name.size);
    if (kv_name_index_find(&g->tensor_names, t.name) >= 0)
        return kv_fail(KVANT_FORMAT, "tensor %s: there twice", shown.text);
    KV_TRY(take_dims(&t, c, shown.text));
    KV_TRY(take_dtype(&t, c, shown.text));
    KV_TRY(take_u64(&place.offset, c, shown.text));
    KV_TRY(kv_gguf_tensor_size(&t.bytes, t.name, t.dtype, t.n_dims, t.dims));
    if (!kv_name_index_add(&g->tensor_names, t.name, (int64_t)g->tensors.count) ||
        !kv_vec_push(&g->tensors, t) || !kv_vec_push(placed, place))
        return KVANT_NO_MEMORY;
    return KVANT_OK;
}

static int by_offset(const void *a, const void *b) {
    const placement *p = a, *q = b;
    return (p->offset > q->offset) - (p->offset < q->offset);
}

/* Gives the tensors their data, after the last check: aligned, inside the file, none over another. */
static kv_status place_tensors(kv_gguf *g, placements *placed, const cursor *c, size_t alignment) {
    if (placed->count == 0) return KVANT_OK;
    size_t start = kv_round_up(c->at, alignment), room = start < c->size ? c->size - start : 0;
    const kv_gguf_tensor *last = NULL;
    uint64_t end = 0;
    qsort(placed->at, placed->count, sizeof *placed->at, by_offset);
    for (size_t i = 0; i < placed->count; i++) {
        kv_gguf_tensor *t = g->tensors.at + placed->at[i].tensor;
        uint64_t offset = placed->at[i].offset;
        kv_gguf_shown shown = kv_gguf_show(t->name, strlen(t->name));
        if (offset % alignment)
            return kv_fail(KVANT_FORMAT, "tensor %s: offset %" PRIu64 ", not a multiple of the alignment %zu",
                           shown.text, offset, alignment);
        if (offset > room || t->bytes > room - offset)
            return kv_fail(KVANT_FORMAT,
                           "tensor %s: %zu bytes at offset %" PRIu64
                           " of the data, the file has %zu (cut short?)",
                           shown.text, t->bytes, offset, room);
        if (offset < end)
            return kv_fail(KVANT_FORMAT, "tensor %s: offset %" PRIu64 " lies inside tensor %s", shown.text,
                           offset, kv_gguf_show(last->name, strlen(last->name)).text);
        t->data = c->data + start + offset;
        end = offset + t->bytes;
        last = t;
    }
    return KVANT_OK;
}

/* ---- file ---- */

static kv_status file_alignment(size_t *out, const kv_gguf_file *file) {
    int64_t alignment = KV_GGUF_DEFAULT_ALIGNMENT;
    const kv_gguf_value *v = kv_gguf_file_find(file, "general.alignment");
    if (v) KV_TRY(kv_gguf_value_integer(&alignment, v, 0, UINT32_MAX));
    KV_TRY(kv_gguf_check_alignment(alignment));
    *out = (size_t)alignment;
    return KVANT_OK;
}

static kv_status parse(kv_gguf *g, kv_gguf_file *file, placements *placed) {
    enum { MIN_KEY_BYTES = 8 + 1 + 4 + 1, MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8 };
    cursor c = {file->map.data, file->map.size, 4};
    uint32_t version = 0;
    uint64_t n_tensors = 0, n_values = 0;
    size_t alignment = 0;
    KV_TRY(check_magic(&file->map));
    KV_TRY(take_u32(&version, &c, "the header"));
    KV_TRY(check_version(version));
    file->version = (int32_t)version;
    KV_TRY(take_count(&n_tensors, &c, MIN_TENSOR_BYTES, "number of tensors"));
    KV_TRY(take_count(&n_values, &c, MIN_KEY_BYTES, "number of keys"));
    for (uint64_t i = 0; i < n_values; i++) KV_TRY(take_value(g, file, &c));
    KV_TRY(file_alignment(&alignment, file));
    for (uint64_t i = 0; i < n_tensors; i++) KV_TRY(take_tensor(g, placed, &c));
    return place_tensors(g, placed, &c, alignment);
}

kv_status kv_gguf_parse(kv_gguf *g, kv_gguf_file *file) {
    placements placed = {0};
    kv_status status = parse(g, file, &placed);
    kv_vec_clear(&placed);
    return status;
}
