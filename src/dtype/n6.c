/* n6: 6 bits, blocks of 32 with a scale and a shift in two bytes: 6.5 bits a number. For caches (see n3): a
 * squared error of 0.031 % of that of normal numbers; a plain f16 scale leaves 0.039 %. Not a type of files.
 */
#include "dtype/n6.h"

#include "dtype/close.h"
#include "dtype/dtype.h"

static void decode(float *dst, const void *src, int64_t n) {
    const kv_n6_block *block = src;
    for (int64_t b = 0; b < n / KV_N6_ELEMS; b++, block++, dst += KV_N6_ELEMS) {
        float scale = kv_shift_scale(block->head), shift = KV_N6_UNIT * kv_shift_of(block->head) - 31.5f;
        for (int i = 0; i < KV_N6_ELEMS; i++) {
            int32_t low = block->low[i % 16] >> 4 * (i / 16) & 15,
                    high = block->high[i % 8] >> 2 * (i / 8) & 3;
            dst[i] = scale * ((float)(low | high << 4) + shift);
        }
    }
}

static void pack(void *dst, const kv_close_code *code) {
    kv_n6_block *block = dst;
    block->head = code->first;
    kv_pack_pairs(block->high, code->quants, 4);
    kv_pack_nibbles(block->low, code->quants);
}

const kv_close_format kv_close_n6 = {
    .kind = KV_CLOSE_SHIFT,
    .n_levels = 64,
    .lowest = -31.5f,
    .unit = KV_N6_UNIT,
    .tries = {{0.98f, 1, 1, 1.02f, 1.02f, 1.04f, 1.04f, 1.04f, 1.06f, 1.06f, 1.08f, 1.08f, 1.1f, 1.1f, 1.12f,
               1.12f},
              {1, 0, 1, 0, 1, -1, 0, 1, 0, 1, 0, 1, 1, 2, 1, 2}},
    .block_bytes = sizeof(kv_n6_block),
    .pack = pack,
};

static void encode(void *dst, const float *src, int64_t n) { kv_close_encode(dst, src, n, &kv_close_n6); }

const kv_dtype kv_dtype_n6 = {
    .name = "n6",
    .gguf_id = -1,
    .block_elems = KV_N6_ELEMS,
    .block_bytes = sizeof(kv_n6_block),
    .n_planes = 3,
    .plane_bytes = {2, KV_N6_ELEMS / 4, KV_N6_ELEMS / 2},
    .decode = decode,
    .encode = encode,
    .act_8bit = true,
    .caches = true,
};
