/* accumulate_quad16_avx512.c: accumulate for V in quad16 with probabilities of 8 bits, AVX-512 with VNNI. */
#include "device/cpu/accumulate_blocks_vec.h"

KV_ACCUMULATE_QUAD16(q8_0, avx512)
KV_ACCUMULATE_QUAD16(q4_0, avx512)
KV_ACCUMULATE_QUAD16(q4_1, avx512)
KV_ACCUMULATE_QUAD16(q5_0, avx512)
KV_ACCUMULATE_QUAD16(q5_1, avx512)
KV_ACCUMULATE_QUAD16(iq4_nl, avx512)
KV_ACCUMULATE_QUAD16(n3, avx512)
KV_ACCUMULATE_QUAD16(n4, avx512)
KV_ACCUMULATE_QUAD16(n6, avx512)
