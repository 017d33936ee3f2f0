/* q8_0 weights in tile16x4: 32 bytes of scales, 8 x 64 bytes of quants, whose flipped sign bit adds 128. */
#include "device/cpu/matmul_avx512.h"
#include "dtype/q8_0.h"

kv_matmul_fn kv_matmul_q8_0_tile16x4_avx512;

KV_INLINE void scales(kv_scales512 *s, const uint8_t *block) { s->scale[0] = kv_load_f16x16(block); }

KV_INLINE void unpack(__m512i q[], const uint8_t *block, int32_t group, int32_t step) {
    (void)group, (void)step;
    const uint8_t *quants = block + offsetof(kv_q8_0_block, quants) * KV_TILE_ROWS;
    for (int i = 0; i < KV_Q8_VECTORS; i++)
        q[i] = _mm512_xor_si512(kv_load512(quants + 64 * i), _mm512_set1_epi8(-128));
}

void kv_matmul_q8_0_tile16x4_avx512(const kv_matmul_args *a) {
    kv_matmul512(a, (kv_format512){.elems = KV_Q8_0_ELEMS,
                                   .bytes = sizeof(kv_q8_0_block),
                                   .sub_elems = 32,
                                   .steps = 1,
                                   .offset = 128,
                                   .scales = scales,
                                   .unpack = unpack});
}
