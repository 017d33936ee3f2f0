/* op.c: the registry, and helpers of shape rules and references. */
#include "op/op.h"

static const kv_op *const registry[] = {
#define KV_OP(name) &kv_op_##name,
#include "op/ops.inc"
#undef KV_OP
};

int32_t kv_op_count(void) { return (int32_t)(sizeof registry / sizeof *registry); }

const kv_op *kv_op_at(int32_t i) { return registry[i]; }

kv_status kv_check_shape(const kv_tensor *t, const char *what, int64_t rows, int64_t cols) {
    if (!t) return kv_fail(KVANT_INVALID, "%s is missing", what);
    if ((rows < 0 || t->rows == rows) && (cols < 0 || t->cols == cols)) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "%s is %lld x %lld, expected %lld x %lld (-1: any)", what,
                   (long long)t->rows, (long long)t->cols, (long long)rows, (long long)cols);
}

kv_status kv_check_plain(const kv_tensor *t, const char *what) {
    if (!t) return kv_fail(KVANT_INVALID, "%s is missing", what);
    if (t->dtype->block_elems == 1 && t->layout->tile == 1) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "%s is %s in layout %s, expected plain floats", what, t->dtype->name,
                   t->layout->name);
}

kv_status kv_read_row(float *dst, const kv_tensor *t, int64_t row) {
    void *plain = kv_alloc(1, kv_dtype_bytes(t->dtype, t->cols));
    if (!plain) return KVANT_NO_MEMORY;
    kv_tensor_decode_row(dst, t, row, plain);
    kv_free(plain);
    return KVANT_OK;
}

void kv_write_row(const kv_tensor *t, int64_t row, const float *src) {
    t->dtype->encode(kv_tensor_row(t, row), src, t->cols);
}
