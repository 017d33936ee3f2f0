/* f32: IEEE binary32, a block of one number. */
#include "dtype/dtype.h"

#include <string.h>

static void decode(float *dst, const void *src, int64_t n) { memcpy(dst, src, (size_t)n * sizeof *dst); }

static void encode(void *dst, const float *src, int64_t n) { memcpy(dst, src, (size_t)n * sizeof *src); }

const kv_dtype kv_dtype_f32 = {
    .name = "f32",
    .gguf_id = 0,
    .block_elems = 1,
    .block_bytes = 4,
    .n_planes = 1,
    .plane_bytes = {4},
    .decode = decode,
    .encode = encode,
    .caches = true,
};
