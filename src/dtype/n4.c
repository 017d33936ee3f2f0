/* n4: 4 bits that name one of sixteen levels, blocks of 32 with a scale and a shift in two bytes: 4.5 bits a
 * number. For caches (see n3): a squared error of 0.46 % of that of normal numbers; q4_0, at the same bytes,
 * leaves 0.75 % as it is usually written and 0.66 % when written closest. Not a type of files. */
#include "dtype/n4.h"

#include "dtype/close.h"
#include "dtype/dtype.h"

static const float levels[] = KV_N4_LEVELS;

static void decode(float *dst, const void *src, int64_t n) {
    const kv_n4_block *block = src;
    for (int64_t b = 0; b < n / KV_N4_ELEMS; b++, block++, dst += KV_N4_ELEMS) {
        float scale = kv_shift_scale(block->head), shift = KV_N4_UNIT * kv_shift_of(block->head);
        for (int i = 0; i < KV_N4_ELEMS / 2; i++) {
            dst[i] = scale * (levels[block->quants[i] & 15] + shift);
            dst[i + KV_N4_ELEMS / 2] = scale * (levels[block->quants[i] >> 4] + shift);
        }
    }
}

static void pack(void *dst, const kv_close_code *code) {
    kv_n4_block *block = dst;
    block->head = code->first;
    kv_pack_nibbles(block->quants, code->quants);
}

const kv_close_format kv_close_n4 = {
    .kind = KV_CLOSE_SHIFT,
    .n_levels = 16,
    .lowest = -127,
    .levels = levels,
    .unit = KV_N4_UNIT,
    .tries = {{0.94f, 0.96f, 0.96f, 0.98f, 0.98f, 0.98f, 0.98f, 1, 1, 1.02f, 1.02f, 1.08f, 1.08f, 1.08f, 1.1f,
               1.12f},
              {1, 0, 1, -1, 0, 1, 2, 0, 1, 0, 1, -2, -1, 2, 3, -2}},
    .block_bytes = sizeof(kv_n4_block),
    .pack = pack,
};

static void encode(void *dst, const float *src, int64_t n) { kv_close_encode(dst, src, n, &kv_close_n4); }

const kv_dtype kv_dtype_n4 = {
    .name = "n4",
    .gguf_id = -1,
    .block_elems = KV_N4_ELEMS,
    .block_bytes = sizeof(kv_n4_block),
    .n_planes = 2,
    .plane_bytes = {2, KV_N4_ELEMS / 2},
    .decode = decode,
    .encode = encode,
    .act_8bit = true,
    .caches = true,
};
