/* gguf_writer.c: writes GGUF version 3. The head of the file (keys, tensor descriptions) is collected in
 * memory, because the counts at its start are known only at its end, and written before the first byte of
 * data. The file gets its name at commit and not before. A failure sticks: after one, commit fails too. */
#include "gguf/gguf_internal.h"

#include <inttypes.h>
#include <string.h>

typedef KV_VEC(uint8_t) bytes;

typedef struct declared {
    const char *name;
    size_t size;
} declared;

struct kv_gguf_writer {
    kv_file_writer *file;
    kv_status failed; /* of the first call that did not succeed */
    size_t alignment;
    bytes values, tensors; /* as they will be in the file */
    uint64_t n_values;
    KV_VEC(declared) declared;
    uint64_t data_offset; /* of the next tensor to be declared */
    kv_name_index keys, tensor_names;
    kv_arena names;
    bool head_written;
    size_t current, written; /* the tensor that is being written and how much of it is */
};

/* ---- encoding into memory ---- */

static kv_status put(bytes *b, const void *data, size_t n) {
    if (!kv_vec_reserve(b, b->count + n)) return KVANT_NO_MEMORY;
    if (n) memcpy(b->at + b->count, data, n);
    b->count += n;
    return KVANT_OK;
}

static kv_status put_u32(bytes *b, uint32_t value) { return put(b, &value, sizeof value); }

static kv_status put_u64(bytes *b, uint64_t value) { return put(b, &value, sizeof value); }

static kv_status put_string(bytes *b, const char *s, size_t n) {
    KV_TRY(put_u64(b, n));
    return put(b, s, n);
}

/* ---- keys ---- */

/* A copy of the name in the index, which must not hold it yet. */
static kv_status register_name(const char **copy, kv_gguf_writer *w, kv_name_index *index, const char *name,
                               int64_t at) {
    if (kv_name_index_find(index, name) >= 0)
        return kv_fail(KVANT_INVALID, "%s: written twice", kv_gguf_show(name, strlen(name)).text);
    *copy = kv_arena_strndup(&w->names, name, strlen(name));
    return *copy && kv_name_index_add(index, *copy, at) ? KVANT_OK : KVANT_NO_MEMORY;
}

static kv_status check_head_open(const kv_gguf_writer *w) {
    return w->head_written ? kv_fail(KVANT_INVALID, "keys and tensors come before the first data") : KVANT_OK;
}

static kv_status set_alignment(kv_gguf_writer *w, const kv_gguf_value *v) {
    int64_t alignment = 0;
    if (w->declared.count) return kv_fail(KVANT_INVALID, "general.alignment comes before the first tensor");
    KV_TRY(kv_gguf_value_integer(&alignment, v, 0, UINT32_MAX));
    KV_TRY(kv_gguf_check_alignment(alignment));
    w->alignment = (size_t)alignment;
    return KVANT_OK;
}

static kv_status add_value(kv_gguf_writer *w, const kv_gguf_value *v) {
    const char *key = NULL;
    KV_TRY(check_head_open(w));
    KV_TRY(kv_gguf_check_key(v->key, strlen(v->key)));
    if (strcmp(v->key, "general.alignment") == 0) KV_TRY(set_alignment(w, v));
    KV_TRY(register_name(&key, w, &w->keys, v->key, (int64_t)w->n_values));
    KV_TRY(put_string(&w->values, key, strlen(key)));
    KV_TRY(put_u32(&w->values, (uint32_t)v->type));
    if (v->type == KV_GGUF_ARRAY) {
        KV_TRY(put_u32(&w->values, (uint32_t)v->element));
        KV_TRY(put_u64(&w->values, v->count));
    }
    KV_TRY(put(&w->values, v->data, v->bytes));
    w->n_values++;
    return KVANT_OK;
}

/* Remembers a failure. */
static kv_status outcome(kv_gguf_writer *w, kv_status status) {
    if (status && !w->failed) w->failed = status;
    return status;
}

kv_status kv_gguf_write_value(kv_gguf_writer *w, const kv_gguf_value *value) {
    return outcome(w, add_value(w, value));
}

kv_status kv_gguf_write_u32(kv_gguf_writer *w, const char *key, uint32_t value) {
    kv_gguf_value v = {key, KV_GGUF_U32, 0, 1, (const uint8_t *)&value, sizeof value};
    return kv_gguf_write_value(w, &v);
}

kv_status kv_gguf_write_f32(kv_gguf_writer *w, const char *key, float value) {
    kv_gguf_value v = {key, KV_GGUF_F32, 0, 1, (const uint8_t *)&value, sizeof value};
    return kv_gguf_write_value(w, &v);
}

kv_status kv_gguf_write_string(kv_gguf_writer *w, const char *key, const char *value) {
    bytes encoded = {0};
    kv_status status = outcome(w, put_string(&encoded, value, strlen(value)));
    if (!status) {
        kv_gguf_value v = {key, KV_GGUF_STRING, 0, 1, encoded.at, encoded.count};
        status = kv_gguf_write_value(w, &v);
    }
    kv_vec_clear(&encoded);
    return status;
}

/* ---- tensors ---- */

static kv_status declare(kv_gguf_writer *w, const char *name, const kv_dtype *dtype, int32_t n_dims,
                         const int64_t *dims) {
    declared d = {0};
    KV_TRY(check_head_open(w));
    KV_TRY(kv_gguf_check_tensor_name(name, strlen(name)));
    if (dtype->gguf_id < 0)
        return kv_fail(KVANT_INVALID, "tensor %s: GGUF has no type %s", name, dtype->name);
    if (n_dims < 1 || n_dims > 4)
        return kv_fail(KVANT_INVALID, "tensor %s: %d dimensions, not from 1 to 4", name, n_dims);
    KV_TRY(kv_gguf_tensor_size(&d.size, name, dtype, n_dims, dims));
    if (d.size > PTRDIFF_MAX - w->data_offset)
        return kv_fail(KVANT_INVALID, "tensor %s: the file would have more than 2^63 bytes", name);
    KV_TRY(register_name(&d.name, w, &w->tensor_names, name, (int64_t)w->declared.count));
    KV_TRY(put_string(&w->tensors, name, strlen(name)));
    KV_TRY(put_u32(&w->tensors, (uint32_t)n_dims));
    for (int32_t i = 0; i < n_dims; i++) KV_TRY(put_u64(&w->tensors, (uint64_t)dims[i]));
    KV_TRY(put_u32(&w->tensors, (uint32_t)dtype->gguf_id));
    KV_TRY(put_u64(&w->tensors, w->data_offset));
    w->data_offset = kv_round_up(w->data_offset + d.size, w->alignment);
    return kv_vec_push(&w->declared, d) ? KVANT_OK : KVANT_NO_MEMORY;
}

kv_status kv_gguf_declare_tensor(kv_gguf_writer *w, const char *name, const kv_dtype *dtype, int32_t n_dims,
                                 const int64_t *dims) {
    return outcome(w, declare(w, name, dtype, n_dims, dims));
}

/* ---- into the file ---- */

static kv_status pad(kv_gguf_writer *w) {
    static const uint8_t zeros[256];
    size_t at = (size_t)kv_file_offset(w->file), left = kv_round_up(at, w->alignment) - at;
    while (left) {
        size_t n = left < sizeof zeros ? left : sizeof zeros;
        KV_TRY(kv_file_write(w->file, zeros, n));
        left -= n;
    }
    return KVANT_OK;
}

static kv_status write_head(kv_gguf_writer *w) {
    if (w->head_written) return KVANT_OK;
    const uint32_t version = 3;
    const uint64_t counts[2] = {w->declared.count, w->n_values};
    KV_TRY(kv_file_write(w->file, "GGUF", 4));
    KV_TRY(kv_file_write(w->file, &version, sizeof version));
    KV_TRY(kv_file_write(w->file, counts, sizeof counts));
    KV_TRY(kv_file_write(w->file, w->values.at, w->values.count));
    KV_TRY(kv_file_write(w->file, w->tensors.at, w->tensors.count));
    w->head_written = true;
    return pad(w);
}

static kv_status write_data(kv_gguf_writer *w, const uint8_t *data, size_t n) {
    if (w->failed) return w->failed;
    KV_TRY(write_head(w));
    while (n) {
        if (w->current == w->declared.count)
            return kv_fail(KVANT_INVALID, "%zu bytes more than the declared tensors have", n);
        size_t left = w->declared.at[w->current].size - w->written, now = n < left ? n : left;
        KV_TRY(kv_file_write(w->file, data, now));
        data += now;
        n -= now;
        w->written += now;
        if (now < left) break;
        KV_TRY(pad(w));
        w->current++;
        w->written = 0;
    }
    return KVANT_OK;
}

kv_status kv_gguf_write_data(kv_gguf_writer *w, const void *data, size_t n) {
    return outcome(w, write_data(w, data, n));
}

static kv_status commit(kv_gguf_writer *w) {
    if (w->failed) return w->failed;
    KV_TRY(write_head(w));
    if (w->current < w->declared.count) {
        const declared *d = w->declared.at + w->current;
        return kv_fail(KVANT_INVALID, "tensor %s: %zu of its %zu bytes written", d->name, w->written,
                       d->size);
    }
    return kv_file_writer_commit(w->file);
}

kv_status kv_gguf_writer_commit(kv_gguf_writer *w) { return outcome(w, commit(w)); }

kv_status kv_gguf_writer_open(kv_gguf_writer **out, const char *path) {
    kv_gguf_writer *w = kv_alloc(1, sizeof *w);
    if (!w) return KVANT_NO_MEMORY;
    w->alignment = KV_GGUF_DEFAULT_ALIGNMENT;
    kv_status status = kv_file_writer_open(&w->file, path);
    if (status)
        kv_gguf_writer_close(w);
    else
        *out = w;
    return status;
}

void kv_gguf_writer_close(kv_gguf_writer *w) {
    if (!w) return;
    kv_file_writer_close(w->file);
    kv_vec_clear(&w->values);
    kv_vec_clear(&w->tensors);
    kv_vec_clear(&w->declared);
    kv_name_index_clear(&w->keys);
    kv_name_index_clear(&w->tensor_names);
    kv_arena_clear(&w->names);
    kv_free(w);
}
