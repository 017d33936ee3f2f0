/* tensor.h: bytes in a buffer, read through dtype x layout x device. A tensor is a matrix: rows x cols
 * numbers; the dimension that is quantized and multiplied over is always cols. A value; it borrows its
 * buffer. */
#pragma once

#include "core/device.h"

/* What ops compute in, and the only dtype and layout that the layers above name. */
#define KV_FLOAT (&kv_dtype_f32)

typedef struct kv_tensor {
    const kv_dtype *dtype;
    const kv_layout *layout;
    int64_t rows, cols;
    const kv_buffer *buffer; /* NULL: scratch, placed by the plan */
    size_t offset;
} kv_tensor;

static inline size_t kv_tensor_bytes(const kv_tensor *t) {
    return kv_layout_bytes(t->layout, t->dtype, t->rows, t->cols);
}

/* The bytes of a tensor, for upload, download and copy. */
static inline kv_range kv_tensor_range(const kv_tensor *t) {
    return (kv_range){t->buffer, t->offset, kv_tensor_bytes(t)};
}
/* All bytes of a tensor, wherever it is, to memory of the host; waits for what computes them. */
kv_status kv_tensor_download(void *to, const kv_tensor *t);

/* Host address of the first byte; only for devices (and references that they run), on memory of their own
 * that the host reaches. */
static inline void *kv_tensor_data(const kv_tensor *t) { return t->buffer->host + t->offset; }

/* Host address of a row of a tensor in the layout `rows`. */
static inline void *kv_tensor_row(const kv_tensor *t, int64_t row) {
    return (uint8_t *)kv_tensor_data(t) + (size_t)row * kv_dtype_bytes(t->dtype, t->cols);
}

/* Row `row` as numbers, from any layout; `plain` has room for one coded row. The scalar way. */
void kv_tensor_decode_row(float *dst, const kv_tensor *t, int64_t row, void *plain);
