/* matmul_supers_avx2.c: matmul kernels for weights in blocks of 256, AVX2. */
#include "device/cpu/matmul_supers_vec.h"

KV_MATMUL(q2_k, avx2)
KV_MATMUL(q3_k, avx2)
KV_MATMUL(q4_k, avx2)
KV_MATMUL(q5_k, avx2)
KV_MATMUL(q6_k, avx2)
KV_MATMUL(iq4_xs, avx2)
