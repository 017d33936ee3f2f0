/* encode_avx2.c: encoders, AVX2. */
#include "device/cpu/encode_vec.h"

KV_ENCODE(f16, avx2)
KV_ENCODE(bf16, avx2)
KV_ENCODE(a8, avx2)
KV_ENCODE(q8_0, avx2)
