/* decode_avx512.c: decoders, AVX-512. */
#include "device/cpu/decode_supers_vec.h"
#include "device/cpu/decode_vec.h"

KV_DECODE(f16, avx512)
KV_DECODE(bf16, avx512)
KV_DECODE(q8_0, avx512)
KV_DECODE(q4_0, avx512)
KV_DECODE(q4_1, avx512)
KV_DECODE(q5_0, avx512)
KV_DECODE(q5_1, avx512)
KV_DECODE(iq4_nl, avx512)
KV_DECODE(n3, avx512)
KV_DECODE(n4, avx512)
KV_DECODE(n6, avx512)

KV_DECODE_SUPERS(q4_k, avx512)
KV_DECODE_SUPERS(q5_k, avx512)
KV_DECODE_SUPERS(q6_k, avx512)
