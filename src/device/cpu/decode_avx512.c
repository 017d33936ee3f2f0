/* decode_avx512.c: decoders, AVX-512. */
#include "device/cpu/decode_vec.h"

KV_DECODE(f16, avx512)
KV_DECODE(bf16, avx512)
KV_DECODE(q8_0, avx512)
KV_DECODE(q4_0, avx512)
KV_DECODE(q4_1, avx512)
