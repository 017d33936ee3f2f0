/* bf16: the upper half of an IEEE binary32, a block of one number. Encoding rounds to nearest even. */
#include "base/half.h"
#include "dtype/dtype.h"

static void decode(float *dst, const void *src, int64_t n) {
    const uint8_t *bytes = src;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, bytes + i * 2, sizeof h);
        dst[i] = kv_bf16_to_f32(h);
    }
}

static void encode(void *dst, const float *src, int64_t n) {
    uint8_t *bytes = dst;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = kv_bf16_from_f32(src[i]);
        memcpy(bytes + i * 2, &h, sizeof h);
    }
}

const kv_dtype kv_dtype_bf16 = {
    .name = "bf16",
    .gguf_id = 30,
    .block_elems = 1,
    .block_bytes = 2,
    .n_planes = 1,
    .plane_bytes = {2},
    .decode = decode,
    .encode = encode,
    .caches = true,
};
