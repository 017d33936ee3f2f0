/* store.c: heads as they are stored, and the scalar way to read and write a cell. */
#include "op/store.h"

#include "base/memory.h"
#include "op/hadamard.h"

#include <string.h>

kv_head_code kv_head_code_of(const kv_dtype *d, int32_t dim, bool rotated) {
    int32_t width = (int32_t)kv_round_up((size_t)dim, (size_t)d->block_elems);
    return (kv_head_code){.dim = dim, .width = width, .rotation = rotated ? kv_hadamard_block(dim) : 1};
}

void kv_heads_store(float *stored, const float *heads, int32_t n, const kv_head_code *code) {
    for (int32_t h = 0; h < n; h++, stored += code->width, heads += code->dim) {
        memcpy(stored, heads, (size_t)code->dim * sizeof *stored);
        memset(stored + code->dim, 0, (size_t)(code->width - code->dim) * sizeof *stored);
        kv_hadamard(stored, code->dim, code->rotation);
    }
}

void kv_heads_restore(float *heads, const float *stored, int32_t n, const kv_head_code *code) {
    for (int32_t h = 0; h < n; h++, stored += code->width, heads += code->dim) {
        memcpy(heads, stored, (size_t)code->dim * sizeof *heads);
        kv_hadamard(heads, code->dim, code->rotation);
    }
}

/* ---- cells ---- */

static kv_status read_heads(float *dst, const kv_tensor *t, int32_t cell, int32_t n,
                            const kv_head_code *code) {
    float *stored = kv_alloc((size_t)t->cols, sizeof *stored);
    void *plain = kv_alloc(1, kv_dtype_bytes(t->dtype, t->cols));
    bool room = stored && plain;
    if (room) {
        kv_tensor_decode_row(stored, t, cell, plain);
        kv_heads_restore(dst, stored, n, code);
    }
    kv_free(stored);
    kv_free(plain);
    return room ? KVANT_OK : KVANT_NO_MEMORY;
}

static kv_status write_heads(const kv_tensor *t, int32_t cell, const float *src, int32_t n,
                             const kv_head_code *code) {
    float *stored = kv_alloc((size_t)t->cols, sizeof *stored);
    void *plain = kv_alloc(1, kv_dtype_bytes(t->dtype, t->cols));
    bool room = stored && plain;
    if (room) {
        kv_heads_store(stored, src, n, code);
        kv_dtype_encode_close(t->dtype, plain, stored, t->cols);
        kv_layout_pack(t->layout, t->dtype, t->cols, kv_tensor_data(t), plain, cell, 1);
    }
    kv_free(stored);
    kv_free(plain);
    return room ? KVANT_OK : KVANT_NO_MEMORY;
}

/* The centre's part of the keys of a cell rotated to `stored`, added to dst. */
static kv_status add_centre(float *dst, const kv_store *s, int64_t stored, const kv_rope *rope) {
    int32_t dim = s->k_head.dim;
    float *mean = kv_alloc((size_t)(s->n_kv_heads * dim), sizeof *mean);
    float *row = kv_alloc((size_t)rope->n_rot, sizeof *row);
    bool room = mean && row;
    if (room) {
        kv_centre_add(mean, s->centre, s->n_kv_heads, dim, rope, 1);
        kv_rope_table_row(row, rope, (double)stored, rope->magnitude);
        for (int32_t h = 0; h < s->n_kv_heads; h++) kv_rope_rotate(mean + h * dim, rope, row);
        for (int32_t i = 0; i < s->n_kv_heads * dim; i++) dst[i] += mean[i];
    }
    kv_free(mean);
    kv_free(row);
    return room ? KVANT_OK : KVANT_NO_MEMORY;
}

kv_status kv_store_read_key(float *dst, const kv_store *s, int32_t cell, int64_t stored,
                            const kv_rope *rope) {
    KV_TRY(read_heads(dst, &s->k, cell, s->n_kv_heads, &s->k_head));
    return s->centre ? add_centre(dst, s, stored, rope) : KVANT_OK;
}

kv_status kv_store_read_value(float *dst, const kv_store *s, int32_t cell) {
    return read_heads(dst, &s->v, cell, s->n_kv_heads, &s->v_head);
}

kv_status kv_store_write_key(const kv_store *s, int32_t cell, const float *src, const kv_rope *rope,
                             const float *table_row) {
    int32_t dim = s->k_head.dim;
    float *keys = kv_alloc((size_t)(s->n_kv_heads * dim), sizeof *keys);
    if (!keys) return KVANT_NO_MEMORY;
    memcpy(keys, src, (size_t)(s->n_kv_heads * dim) * sizeof *keys);
    if (s->centre) kv_centre_add(keys, s->centre, s->n_kv_heads, dim, rope, -1);
    for (int32_t h = 0; table_row && h < s->n_kv_heads; h++) kv_rope_rotate(keys + h * dim, rope, table_row);
    kv_status status = write_heads(&s->k, cell, keys, s->n_kv_heads, &s->k_head);
    kv_free(keys);
    return status;
}

kv_status kv_store_write_value(const kv_store *s, int32_t cell, const float *src) {
    return write_heads(&s->v, cell, src, s->n_kv_heads, &s->v_head);
}
