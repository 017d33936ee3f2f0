/* close.h: the codes of a block of 32 numbers that come closest to it: least squared error. What a cache
 * writes is read many times and multiplied by what nobody knows yet, so the search is worth its time. Sixteen
 * candidates of scale (and minimum or shift), spread around the one that just covers the block, are tried
 * side by side, and the best is taken. close_block.h is the search; it is compiled here for every processor,
 * and as a kernel with the flags of an instruction set: same operations, same bits. */
#pragma once

#include <stdint.h>

enum { KV_CLOSE_ELEMS = 32, KV_CLOSE_TRIALS = 16 };

/* What a block stores. */
typedef struct kv_close_code {
    uint16_t first, second; /* f16 of the scale or head (shift.h); f16 of the minimum */
    uint8_t quants[KV_CLOSE_ELEMS];
} kv_close_code;

typedef enum kv_close_kind {
    KV_CLOSE_SCALE, /* x = scale * level                       tries: multiples of the covering scale */
    KV_CLOSE_MIN,   /* x = scale * level + min                 tries: what is cut off below and above */
    KV_CLOSE_SHIFT  /* x = scale * (level + unit * shift)      tries: multiples of the covering scale, steps
                       from  the shift that puts the levels into the middle */
} kv_close_kind;

typedef struct kv_close_format {
    kv_close_kind kind;
    int32_t n_levels;
    float lowest;        /* level 0; the largest in magnitude */
    const float *levels; /* ascending; NULL: lowest, lowest + 1, ... */
    float unit;          /* of shifts */
    /* The sixteen that together leave the least error on normal numbers, chosen one after the other from a
     * fine grid. The measure is the largest magnitude over -lowest, or the whole range. */
    float tries[2][KV_CLOSE_TRIALS];
    int32_t block_bytes;
    void (*pack)(void *block, const kv_close_code *code);
} kv_close_format;

/* n (a multiple of 32) numbers to blocks. Any floats will do: those beyond 2^50 are cut, NaN counts as 0. */
void kv_close_encode(void *dst, const float *src, int64_t n, const kv_close_format *format);

/* The formats that can be written so. */
extern const kv_close_format kv_close_q4_0, kv_close_q4_1, kv_close_q5_0, kv_close_q5_1, kv_close_iq4_nl,
    kv_close_n3, kv_close_n4, kv_close_n6;

/* Where quants lie in the blocks that share a way: nibbles (i and i + 16 in a byte), single bits from `bit`
 * of each quant on, pairs of bits from `bit` on (8 k + j: pair k of byte j). */
static inline void kv_pack_nibbles(uint8_t bytes[16], const uint8_t quants[KV_CLOSE_ELEMS]) {
    for (int i = 0; i < 16; i++) bytes[i] = (uint8_t)((quants[i] & 15) | (quants[i + 16] & 15) << 4);
}

static inline uint32_t kv_pack_bits(const uint8_t quants[KV_CLOSE_ELEMS], int bit) {
    uint32_t bits = 0;
    for (int i = 0; i < KV_CLOSE_ELEMS; i++) bits |= (uint32_t)(quants[i] >> bit & 1) << i;
    return bits;
}

static inline void kv_pack_pairs(uint8_t bytes[8], const uint8_t quants[KV_CLOSE_ELEMS], int bit) {
    for (int j = 0; j < 8; j++) {
        unsigned byte = 0;
        for (int k = 0; k < 4; k++) byte |= (quants[8 * k + j] >> bit & 3u) << 2 * k;
        bytes[j] = (uint8_t)byte;
    }
}
