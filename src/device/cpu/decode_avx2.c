/* decode_avx2.c: decoders, AVX2. */
#include "device/cpu/decode_vec.h"

KV_DECODE(f16, avx2)
KV_DECODE(bf16, avx2)
KV_DECODE(q8_0, avx2)
KV_DECODE(q4_0, avx2)
KV_DECODE(q4_1, avx2)
