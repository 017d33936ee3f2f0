/* q4_1 weights in tile16x4: 64 bytes of scales and minima, 4 x 64 bytes of nibbles. */
#include "device/cpu/matmul_avx512.h"
#include "dtype/q4_1.h"

kv_matmul_fn kv_matmul_q4_1_tile16x4_avx512;

KV_INLINE void scales(kv_scales512 *s, const uint8_t *block) {
    kv_load_f16_pairs(&s->scale[0], &s->min[0], block);
}

KV_INLINE void unpack(__m512i q[], const uint8_t *block, int32_t group, int32_t step) {
    (void)group, (void)step;
    kv_unpack_nibbles512(q, block + offsetof(kv_q4_1_block, quants) * KV_TILE_ROWS);
}

void kv_matmul_q4_1_tile16x4_avx512(const kv_matmul_args *a) {
    kv_matmul512(a, (kv_format512){.elems = KV_Q4_1_ELEMS,
                                   .bytes = sizeof(kv_q4_1_block),
                                   .sub_elems = 32,
                                   .steps = 1,
                                   .has_min = true,
                                   .scales = scales,
                                   .unpack = unpack});
}
