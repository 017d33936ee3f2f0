/* a8: activations in 8 bits, blocks of 32 with a scale in f32 and the sum of the block. Never stored in
 * files: it is what the fast mode feeds to integer dot products. Rounded half to even; the largest magnitude
 * becomes 127. */
#include "dtype/a8.h"

#include "dtype/dtype.h"
#include "dtype/quant.h"

#include <float.h>

static void decode(float *dst, const void *src, int64_t n) {
    const uint8_t *bytes = src;
    for (int64_t b = 0; b < n / KV_A8_ELEMS; b++, bytes += sizeof(kv_a8_block)) {
        kv_a8_block block;
        memcpy(&block, bytes, sizeof block);
        for (int i = 0; i < KV_A8_ELEMS; i++) dst[b * KV_A8_ELEMS + i] = block.scale * (float)block.quants[i];
    }
}

static kv_a8_block encode_block(const float *src) {
    kv_a8_block block;
    float max = fabsf(kv_quant_extreme(src, KV_A8_ELEMS));
    float scale = max / 127.0f, inverse = scale >= FLT_MIN ? 127.0f / max : 0;
    int32_t sum = 0;
    for (int i = 0; i < KV_A8_ELEMS; i++) {
        int32_t q = kv_quant_round(src[i] * inverse, -127, 127);
        block.quants[i] = (int8_t)q;
        sum += q;
    }
    block.scale = scale;
    block.sum = scale * (float)sum;
    return block;
}

static void encode(void *dst, const float *src, int64_t n) {
    uint8_t *bytes = dst;
    for (int64_t b = 0; b < n / KV_A8_ELEMS; b++, bytes += sizeof(kv_a8_block)) {
        kv_a8_block block = encode_block(src + b * KV_A8_ELEMS);
        memcpy(bytes, &block, sizeof block);
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
