/* encode_avx512.c: encoders, AVX-512. */
#include "device/cpu/encode_vec.h"

KV_ENCODE(f16, avx512)
KV_ENCODE(bf16, avx512)
KV_ENCODE(a8, avx512)
KV_ENCODE(q8_0, avx512)
