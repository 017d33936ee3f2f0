/* tensor.c: reading a tensor the plain way. */
#include "core/tensor.h"

kv_status kv_tensor_download(void *to, const kv_tensor *t) {
    return t->buffer->device->download(to, kv_tensor_range(t));
}

void kv_tensor_decode_row(float *dst, const kv_tensor *t, int64_t row, void *plain) {
    kv_layout_unpack(t->layout, t->dtype, t->cols, plain, kv_tensor_data(t), row, 1);
    t->dtype->decode(dst, plain, t->cols);
}
