/* encode_close_avx2.c: encoders with the least squared error, AVX2. */
#include "device/cpu/encode_close_vec.h"

KV_ENCODE_CLOSE_ALL(avx2)
