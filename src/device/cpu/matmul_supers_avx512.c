/* matmul_supers_avx512.c: matmul kernels for weights in blocks of 256, AVX-512 with VNNI. */
#include "device/cpu/matmul_supers_vec.h"

KV_MATMUL(q2_k, avx512)
KV_MATMUL(q3_k, avx512)
KV_MATMUL(q4_k, avx512)
KV_MATMUL(q5_k, avx512)
KV_MATMUL(q6_k, avx512)
KV_MATMUL(iq4_xs, avx512)
