/* n3: 3 bits that name one of eight levels, blocks of 32 with a scale and a shift in two bytes: 3.5 bits a
 * number. For caches, whose numbers are nearly normal after the Hadamard transform: a squared error of 2.0 %
 * of theirs, where eight even levels with an f16 scale leave 2.6 % at the same bytes. Not a type of files. */
#include "dtype/n3.h"

#include "dtype/close.h"
#include "dtype/dtype.h"

static const float levels[] = KV_N3_LEVELS;

static void decode(float *dst, const void *src, int64_t n) {
    const kv_n3_block *block = src;
    for (int64_t b = 0; b < n / KV_N3_ELEMS; b++, block++, dst += KV_N3_ELEMS) {
        float scale = kv_shift_scale(block->head), shift = KV_N3_UNIT * kv_shift_of(block->head);
        for (int i = 0; i < KV_N3_ELEMS; i++) {
            uint32_t q = (block->low[i % 8] >> 2 * (i / 8) & 3u) | (block->high >> i & 1) << 2;
            dst[i] = scale * (levels[q] + shift);
        }
    }
}

static void pack(void *dst, const kv_close_code *code) {
    kv_n3_block *block = dst;
    block->head = code->first;
    block->high = kv_pack_bits(code->quants, 2);
    kv_pack_pairs(block->low, code->quants, 0);
}

const kv_close_format kv_close_n3 = {
    .kind = KV_CLOSE_SHIFT,
    .n_levels = 8,
    .lowest = -127,
    .levels = levels,
    .unit = KV_N3_UNIT,
    .tries = {{0.88f, 0.88f, 0.9f, 0.9f, 0.94f, 0.94f, 0.94f, 0.94f, 0.94f, 0.94f, 0.98f, 1, 1, 1, 1.02f,
               1.04f},
              {0, 1, -1, 2, -2, -1, 0, 1, 2, 3, 0, -1, 1, 2, 0, 4}},
    .block_bytes = sizeof(kv_n3_block),
    .pack = pack,
};

static void encode(void *dst, const float *src, int64_t n) { kv_close_encode(dst, src, n, &kv_close_n3); }

const kv_dtype kv_dtype_n3 = {
    .name = "n3",
    .gguf_id = -1,
    .block_elems = KV_N3_ELEMS,
    .block_bytes = sizeof(kv_n3_block),
    .n_planes = 3,
    .plane_bytes = {2, 4, KV_N3_ELEMS / 4},
    .decode = decode,
    .encode = encode,
    .act_8bit = true,
    .caches = true,
};
