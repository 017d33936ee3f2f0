/* decode_vec.h: rows of a dtype to f32, through its row load. */
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/vec_dtype.h"

enum { KV_DECODE_RUN = 32 }; /* numbers in a turn of the loop: a block of the common formats */

KV_TEMPLATE void kv_decode_vec(float *dst, const void *src, int64_t n, kv_vec_row_fn *load,
                               const kv_dtype *dtype) {
    const uint8_t *row = src;
    for (; n >= KV_DECODE_RUN; n -= KV_DECODE_RUN, dst += KV_DECODE_RUN) {
        for (int32_t i = 0; i < KV_DECODE_RUN; i += KV_LANES) kv_vec_store(dst + i, load(row, i, KV_LANES));
        row += kv_dtype_bytes(dtype, KV_DECODE_RUN);
    }
    for (int32_t i = 0; i < n; i += KV_LANES) {
        int32_t rest = (int32_t)n - i;
        if (rest >= KV_LANES)
            kv_vec_store(dst + i, load(row, i, KV_LANES));
        else
            kv_vec_store_n(dst + i, load(row, i, rest), rest);
    }
}

/* Defines kv_decode_<dtype>_<isa>. */
#define KV_DECODE(dtype, isa)                                                \
    kv_decode_fn kv_decode_##dtype##_##isa;                                  \
    void kv_decode_##dtype##_##isa(float *dst, const void *src, int64_t n) { \
        kv_decode_vec(dst, src, n, kv_vec_row_##dtype, &kv_dtype_##dtype);   \
    }
