/* dtype.h: how numbers are coded as bytes. A dtype is data plus scalar encode and decode of whole blocks; the
 * scalar code is the truth that every kernel is tested against. A new dtype is one file with a const kv_dtype
 * and one line in dtypes.inc. Where blocks lie in memory is the layout's business, not the dtype's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KV_MAX_PLANES = 6 };

typedef struct kv_dtype {
    const char *name;    /* "q8_0", as users type it */
    int32_t gguf_id;     /* type number in GGUF files, -1 if it never occurs there */
    int32_t block_elems; /* numbers in a block */
    int32_t block_bytes; /* bytes of a block */
    /* A block is the concatenation of its planes, which a layout interleaves separately: each
     * array of quants or scales is its own, an f16 scale and its minimum are one. They sum to block_bytes. */
    int32_t n_planes;
    int32_t plane_bytes[KV_MAX_PLANES];
    /* dst[n] = numbers of n / block_elems blocks at src (any alignment). Bit-exact with the format's
     * definition. */
    void (*decode)(float *dst, const void *src, int64_t n);
    /* NULL where the format cannot be written without an importance matrix. */
    void (*encode)(void *dst, const float *src, int64_t n);
    /* Blocks with the least squared error rather than those of the format's usual encoder: what a cache
     * writes. NULL where `encode` is that already, or nothing is to be gained. */
    void (*encode_close)(void *dst, const float *src, int64_t n);
    /* Whether matmul against weights of this dtype takes activations in 8 bits in the fast mode; otherwise
     * f32. */
    bool act_8bit;
    /* Fit for a KV cache: can be written token by token, blocks are shorter than heads. */
    bool caches;
} kv_dtype;

/* All dtypes in the order of dtypes.inc. */
#define KV_DTYPE(name) extern const kv_dtype kv_dtype_##name;
#include "dtype/dtypes.inc"
#undef KV_DTYPE

int32_t kv_dtype_count(void);
const kv_dtype *kv_dtype_at(int32_t i);
/* NULL if there is none of that name or number. */
const kv_dtype *kv_dtype_by_name(const char *name);
const kv_dtype *kv_dtype_by_gguf_id(int32_t id);

/* What a cache writes: the closest blocks there are for n numbers. */
static inline void kv_dtype_encode_close(const kv_dtype *d, void *dst, const float *src, int64_t n) {
    (d->encode_close ? d->encode_close : d->encode)(dst, src, n);
}

/* Bytes of n numbers, n a multiple of block_elems. */
static inline size_t kv_dtype_bytes(const kv_dtype *d, int64_t n) {
    return (size_t)(n / d->block_elems) * (size_t)d->block_bytes;
}
