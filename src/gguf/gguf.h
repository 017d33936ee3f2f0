/* gguf.h: GGUF v2/v3 files (single or split), memory-mapped. The container only: keys, values, tensors, where
 * they lie. Everything is validated when the file is opened, in release builds too: counts against the bytes
 * that are left, every size by checked arithmetic, names unique, offsets aligned and inside the file, tensors
 * without overlap. Format: github.com/ggml-org/ggml, docs/gguf.md. */
#pragma once

#include "base/status.h"
#include "dtype/dtype.h"

typedef struct kv_gguf kv_gguf;

// clang-format off
typedef enum kv_gguf_type { /* the numbers of the format */
    KV_GGUF_U8, KV_GGUF_I8, KV_GGUF_U16, KV_GGUF_I16, KV_GGUF_U32, KV_GGUF_I32, KV_GGUF_F32, KV_GGUF_BOOL,
    KV_GGUF_STRING, KV_GGUF_ARRAY, KV_GGUF_U64, KV_GGUF_I64, KV_GGUF_F64
} kv_gguf_type;
// clang-format on
const char *kv_gguf_type_name(kv_gguf_type type); /* "u32", "string", ... */
size_t kv_gguf_type_bytes(kv_gguf_type type);     /* 0 for strings and arrays */

typedef struct kv_gguf_string {
    const char *at; /* borrowed from the map, not NUL-terminated */
    size_t size;
} kv_gguf_string;

typedef struct kv_gguf_tensor {
    const char *name; /* NUL-terminated, owned by the kv_gguf */
    const kv_dtype *dtype;
    int32_t n_dims;      /* 1 to 4 */
    int64_t dims[4];     /* dims[0] = elements of a row; unused ones are 1 */
    const uint8_t *data; /* inside the map, read-only */
    size_t bytes;
} kv_gguf_tensor;

/* Opens `path`; if it is the first of a split set, all of them. */
kv_status kv_gguf_open(kv_gguf **out, const char *path);
/* The same on bytes that stay valid until close (fuzzing, tests); split files are refused. */
kv_status kv_gguf_open_memory(kv_gguf **out, const uint8_t *data, size_t size);
void kv_gguf_close(kv_gguf *g);

int32_t kv_gguf_version(const kv_gguf *g);
size_t kv_gguf_file_bytes(const kv_gguf *g); /* all files of the set */

/* Keys by index, in file order (for inspect and copying). */
typedef struct kv_gguf_value {
    const char *key;
    kv_gguf_type type;
    kv_gguf_type element; /* of an array */
    uint64_t count;       /* of an array, else 1 */
    const uint8_t *data;  /* first encoded byte of the value or of the first element */
    size_t bytes;         /* encoded bytes of the value or of all elements */
} kv_gguf_value;
int64_t kv_gguf_n_values(const kv_gguf *g);
const kv_gguf_value *kv_gguf_value_at(const kv_gguf *g, int64_t i);
/* NULL if absent. */
const kv_gguf_value *kv_gguf_find(const kv_gguf *g, const char *key);

/* Typed getters. Any integer type converts if the value fits, f64 to f32 too, else an error naming key, value
 * and range; bools are no integers. `required`: a missing key is an error; otherwise *out is left as it was
 * (put the default there first). */
typedef enum kv_gguf_need { KV_GGUF_OPTIONAL, KV_GGUF_REQUIRED } kv_gguf_need;
kv_status kv_gguf_get_i32(const kv_gguf *g, const char *key, kv_gguf_need need, int32_t *out);
kv_status kv_gguf_get_f32(const kv_gguf *g, const char *key, kv_gguf_need need, float *out); /* finite only */
kv_status kv_gguf_get_bool(const kv_gguf *g, const char *key, kv_gguf_need need, bool *out);
kv_status kv_gguf_get_string(const kv_gguf *g, const char *key, kv_gguf_need need, kv_gguf_string *out);
/* Arrays of n items; *out is owned by the caller (kv_free). An integer array also accepts bools, floats are
 * finite. Absent and optional: *out NULL, *n 0. */
kv_status kv_gguf_get_i32_array(const kv_gguf *g, const char *key, kv_gguf_need need, int32_t **out,
                                size_t *n);
kv_status kv_gguf_get_f32_array(const kv_gguf *g, const char *key, kv_gguf_need need, float **out, size_t *n);
kv_status kv_gguf_get_string_array(const kv_gguf *g, const char *key, kv_gguf_need need, kv_gguf_string **out,
                                   size_t *n);

int64_t kv_gguf_n_tensors(const kv_gguf *g);
const kv_gguf_tensor *kv_gguf_tensor_at(const kv_gguf *g, int64_t i);
/* NULL if absent; constant time. */
const kv_gguf_tensor *kv_gguf_find_tensor(const kv_gguf *g, const char *name);
/* The tensor's pages may be dropped: its bytes have been copied elsewhere (they can still be read, from
 * disk). */
void kv_gguf_release_tensor(const kv_gguf *g, const kv_gguf_tensor *t);

/* ---- writer ---- */

/* Values first, then all tensor descriptions, then the tensors' bytes in the same order. Writes through
 * kv_file_writer: nothing under `path` until commit. Version 3; tensors are aligned to 32 bytes, or to what a
 * value general.alignment says. */
typedef struct kv_gguf_writer kv_gguf_writer;
kv_status kv_gguf_writer_open(kv_gguf_writer **out, const char *path);
kv_status kv_gguf_write_value(kv_gguf_writer *w, const kv_gguf_value *value); /* as it came from a reader */
kv_status kv_gguf_write_u32(kv_gguf_writer *w, const char *key, uint32_t value);
kv_status kv_gguf_write_f32(kv_gguf_writer *w, const char *key, float value);
kv_status kv_gguf_write_string(kv_gguf_writer *w, const char *key, const char *value);
kv_status kv_gguf_declare_tensor(kv_gguf_writer *w, const char *name, const kv_dtype *dtype, int32_t n_dims,
                                 const int64_t *dims);
/* Appends bytes of the declared tensors, in order and without padding; may be called in pieces of any size.
 * Too many or too few is an error. After any failed call commit fails too: close the writer. */
kv_status kv_gguf_write_data(kv_gguf_writer *w, const void *data, size_t bytes);
kv_status kv_gguf_writer_commit(kv_gguf_writer *w);
void kv_gguf_writer_close(kv_gguf_writer *w);
