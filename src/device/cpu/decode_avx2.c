/* decode_avx2.c: decoders, AVX2. */
#include "device/cpu/decode_supers_vec.h"
#include "device/cpu/decode_vec.h"

KV_DECODE(f16, avx2)
KV_DECODE(bf16, avx2)
KV_DECODE(q8_0, avx2)
KV_DECODE(q4_0, avx2)
KV_DECODE(q4_1, avx2)
KV_DECODE(q5_0, avx2)
KV_DECODE(q5_1, avx2)
KV_DECODE(iq4_nl, avx2)
KV_DECODE(n3, avx2)
KV_DECODE(n4, avx2)
KV_DECODE(n6, avx2)

KV_DECODE_SUPERS(q4_k, avx2)
KV_DECODE_SUPERS(q5_k, avx2)
KV_DECODE_SUPERS(q6_k, avx2)
