/* encode_close_avx512.c: encoders with the least squared error, AVX-512. */
#include "device/cpu/encode_close_vec.h"

KV_ENCODE_CLOSE_ALL(avx512)
