/* gguf_internal.h: what the parts of the GGUF reader and writer share. Not for others: they include gguf.h.
 */
#pragma once

#include "base/file.h"
#include "base/memory.h"
#include "gguf/gguf.h"
#include "gguf/name_index.h"

enum {
    KV_GGUF_N_TYPES = KV_GGUF_F64 + 1,
    KV_GGUF_MAX_KEY = 65535,        /* bytes, from the format */
    KV_GGUF_MAX_TENSOR_NAME = 255,  /* bytes; the format says 64, files of large models go beyond */
    KV_GGUF_DEFAULT_ALIGNMENT = 32, /* of tensors, where general.alignment is absent */
    KV_GGUF_MAX_ALIGNMENT = 1 << 24
};
#define KV_GGUF_MAX_DIM (INT64_C(1) << 40)

/* One file of a set. */
typedef struct kv_gguf_file {
    kv_file_map map;
    bool mapped; /* by us: close unmaps it */
    int32_t version;
    KV_VEC(kv_gguf_value) values;
    kv_name_index keys;
} kv_gguf_file;

struct kv_gguf {
    KV_VEC(kv_gguf_file) files; /* the first one answers for the keys */
    KV_VEC(kv_gguf_tensor) tensors;
    kv_name_index tensor_names;
    kv_arena names; /* keys and tensor names, NUL-terminated */
};

/* A name as a message shows it: cut, and printable whatever the file says. */
typedef struct kv_gguf_shown {
    char text[84];
} kv_gguf_shown;
kv_gguf_shown kv_gguf_show(const char *name, size_t size);

/* Reads the header, keys and tensor descriptions of a file into *file and appends its tensors to g. */
kv_status kv_gguf_parse(kv_gguf *g, kv_gguf_file *file);
const kv_gguf_value *kv_gguf_file_find(const kv_gguf_file *file, const char *key);

/* Rules that hold for the reader and the writer. */
kv_status kv_gguf_check_key(const char *key, size_t size);
kv_status kv_gguf_check_tensor_name(const char *name, size_t size);
kv_status kv_gguf_check_alignment(int64_t alignment);
/* Checks the shape and gives the bytes of the tensor. */
kv_status kv_gguf_tensor_size(size_t *bytes, const char *name, const kv_dtype *dtype, int32_t n_dims,
                              const int64_t *dims);

/* An integer of any type that fits in [min, max]. */
kv_status kv_gguf_value_integer(int64_t *out, const kv_gguf_value *v, int64_t min, int64_t max);
