/* a8: activations in 8 bits, blocks of 32 with a scale in f32 and the sum of the block. Never stored in files: it is
 * what the fast mode feeds to integer dot products. Rounded half to even; the largest magnitude becomes 127. */
#include "dtype/a8.h"

#include "dtype/dtype.h"

#include <math.h>

static void decode(float *dst, const void *src, int64_t n) {
    const kv_a8_block *block = src;
    for (int64_t b = 0; b < n / KV_A8_ELEMS; b++)
        for (int i = 0; i < KV_A8_ELEMS; i++) dst[b * KV_A8_ELEMS + i] = block[b].scale * (float)block[b].quants[i];
}

static void encode(void *dst, const float *src, int64_t n) {
    kv_a8_block *block = dst;
    for (int64_t b = 0; b < n / KV_A8_ELEMS; b++, src += KV_A8_ELEMS) {
        float max = 0;
        for (int i = 0; i < KV_A8_ELEMS; i++) max = fmaxf(max, fabsf(src[i]));
        float scale = max / 127.0f, inverse = max > 0 ? 127.0f / max : 0;
        int32_t sum = 0;
        for (int i = 0; i < KV_A8_ELEMS; i++) {
            int32_t q = (int32_t)lrintf(src[i] * inverse);
            block[b].quants[i] = (int8_t)q;
            sum += q;
        }
        block[b].scale = scale;
        block[b].sum = scale * (float)sum;
    }
}

const kv_dtype kv_dtype_a8 = {
    .name = "a8",
    .gguf_id = -1,
    .block_elems = KV_A8_ELEMS,
    .block_bytes = sizeof(kv_a8_block),
    .n_planes = 3,
    .plane_bytes = {4, 4, KV_A8_ELEMS},
    .decode = decode,
    .encode = encode,
};
