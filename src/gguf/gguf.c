/* gguf.c: an open GGUF file or set of files: opening, closing, looking up. */
#define _GNU_SOURCE
#include "gguf/gguf.h"

#include "gguf/gguf_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- one file ---- */

/* Parses what `map` holds and adds it to g, which owns the map from then on, whatever comes out. */
static kv_status add_file(kv_gguf *g, kv_file_map map, bool mapped) {
    kv_gguf_file file = {.map = map, .mapped = mapped};
    if (!kv_vec_push(&g->files, file)) {
        if (mapped) kv_file_map_close(&map);
        return KVANT_NO_MEMORY;
    }
    return kv_gguf_parse(g, g->files.at + g->files.count - 1);
}

/* ---- sets of files ---- */

typedef struct split {
    int64_t no, count, n_tensors; /* this file, of how many; tensors of the whole set */
} split;

static kv_status read_split(split *out, const kv_gguf_file *file) {
    const struct {
        const char *key;
        int64_t *field, max;
    } keys[] = {{"split.no", &out->no, UINT16_MAX},
                {"split.count", &out->count, UINT16_MAX},
                {"split.tensors.count", &out->n_tensors, INT32_MAX}};
    *out = (split){.count = 1, .n_tensors = -1};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const kv_gguf_value *v = kv_gguf_file_find(file, keys[i].key);
        if (v) KV_TRY(kv_gguf_value_integer(keys[i].field, v, 0, keys[i].max));
    }
    return KVANT_OK;
}

static kv_status add_path(kv_gguf *g, split *out, const char *path) {
    kv_file_map map;
    KV_TRY(kv_file_map_open(&map, path));
    kv_status status = add_file(g, map, true);
    if (!status) status = read_split(out, g->files.at + g->files.count - 1);
    return status ? kv_fail_in(status, "%s", path) : KVANT_OK;
}

/* Bytes of "-00001-of-00005.gguf". */
enum { SUFFIX_BYTES = 20 };

static void split_suffix(char suffix[64], int64_t no, int64_t count) {
    snprintf(suffix, 64, "-%05lld-of-%05lld.gguf", (long long)no + 1, (long long)count);
}

static kv_status check_first(const char *path, const split *s) {
    char suffix[64];
    size_t n = strlen(path);
    split_suffix(suffix, 0, s->count);
    if (s->no != 0)
        return kv_fail(KVANT_INVALID, "%s: file %lld of a set of %lld, open the first one (*%s)", path,
                       (long long)s->no + 1, (long long)s->count, suffix);
    if (n < SUFFIX_BYTES || strcmp(path + n - SUFFIX_BYTES, suffix) != 0)
        return kv_fail(KVANT_INVALID, "%s: the first file of a set of %lld, its name must end in %s", path,
                       (long long)s->count, suffix);
    return KVANT_OK;
}

static kv_status add_part(kv_gguf *g, const char *first_path, int64_t no, int64_t count) {
    char suffix[64];
    split part;
    size_t n = strlen(first_path);
    char *path = kv_strdup(first_path);
    if (!path) return KVANT_NO_MEMORY;
    split_suffix(suffix, no, count);
    memcpy(path + n - SUFFIX_BYTES, suffix, SUFFIX_BYTES);
    kv_status status = add_path(g, &part, path);
    if (!status && (part.no != no || part.count != count))
        status = kv_fail(KVANT_FORMAT, "%s: it says file %lld of %lld, not %lld of %lld", path,
                         (long long)part.no + 1, (long long)part.count, (long long)no + 1, (long long)count);
    kv_free(path);
    return status;
}

static kv_status add_set(kv_gguf *g, const char *path) {
    split s;
    KV_TRY(add_path(g, &s, path));
    if (s.count <= 1) return KVANT_OK;
    KV_TRY(check_first(path, &s));
    for (int64_t no = 1; no < s.count; no++) KV_TRY(add_part(g, path, no, s.count));
    if (s.n_tensors != (int64_t)g->tensors.count)
        return kv_fail(KVANT_FORMAT, "%s: the set has %zu tensors, split.tensors.count says %lld", path,
                       g->tensors.count, (long long)s.n_tensors);
    return KVANT_OK;
}

/* ---- open and close ---- */

kv_status kv_gguf_open(kv_gguf **out, const char *path) {
    kv_gguf *g = kv_alloc(1, sizeof *g);
    if (!g) return KVANT_NO_MEMORY;
    kv_status status = add_set(g, path);
    if (status)
        kv_gguf_close(g);
    else
        *out = g;
    return status;
}

static kv_status add_memory(kv_gguf *g, const uint8_t *data, size_t size) {
    split s;
    KV_TRY(add_file(g, (kv_file_map){data, size}, false));
    KV_TRY(read_split(&s, g->files.at));
    if (s.count > 1)
        return kv_fail(KVANT_UNSUPPORTED, "file %lld of a set of %lld cannot be read from memory",
                       (long long)s.no + 1, (long long)s.count);
    return KVANT_OK;
}

kv_status kv_gguf_open_memory(kv_gguf **out, const uint8_t *data, size_t size) {
    kv_gguf *g = kv_alloc(1, sizeof *g);
    if (!g) return KVANT_NO_MEMORY;
    kv_status status = add_memory(g, data, size);
    if (status)
        kv_gguf_close(g);
    else
        *out = g;
    return status;
}

void kv_gguf_close(kv_gguf *g) {
    if (!g) return;
    for (size_t i = 0; i < g->files.count; i++) {
        kv_gguf_file *file = g->files.at + i;
        if (file->mapped) kv_file_map_close(&file->map);
        kv_vec_clear(&file->values);
        kv_name_index_clear(&file->keys);
    }
    kv_vec_clear(&g->files);
    kv_vec_clear(&g->tensors);
    kv_name_index_clear(&g->tensor_names);
    kv_arena_clear(&g->names);
    kv_free(g);
}

/* ---- looking up ---- */

int32_t kv_gguf_version(const kv_gguf *g) { return g->files.at[0].version; }

size_t kv_gguf_file_bytes(const kv_gguf *g) {
    size_t bytes = 0;
    for (size_t i = 0; i < g->files.count; i++) bytes += g->files.at[i].map.size;
    return bytes;
}

int64_t kv_gguf_n_values(const kv_gguf *g) { return (int64_t)g->files.at[0].values.count; }

const kv_gguf_value *kv_gguf_value_at(const kv_gguf *g, int64_t i) { return g->files.at[0].values.at + i; }

const kv_gguf_value *kv_gguf_find(const kv_gguf *g, const char *key) {
    return kv_gguf_file_find(g->files.at, key);
}

int64_t kv_gguf_n_tensors(const kv_gguf *g) { return (int64_t)g->tensors.count; }

const kv_gguf_tensor *kv_gguf_tensor_at(const kv_gguf *g, int64_t i) { return g->tensors.at + i; }

const kv_gguf_tensor *kv_gguf_find_tensor(const kv_gguf *g, const char *name) {
    int64_t i = kv_name_index_find(&g->tensor_names, name);
    return i < 0 ? NULL : g->tensors.at + i;
}

void kv_gguf_release_tensor(const kv_gguf *g, const kv_gguf_tensor *t) {
    /* A private map of a file that nobody wrote to: dropped pages come back from the file. */
    if (g->files.at[0].mapped) kv_pages_release((void *)(uintptr_t)t->data, t->bytes);
}
