/* matmul_blocks_avx2.c: matmul kernels for weights in blocks of 32, AVX2. */
#include "device/cpu/matmul_blocks_vec.h"

KV_MATMUL(q4_0, avx2)
KV_MATMUL(q4_1, avx2)
KV_MATMUL(q5_0, avx2)
KV_MATMUL(q5_1, avx2)
KV_MATMUL(q8_0, avx2)
KV_MATMUL(iq4_nl, avx2)
KV_MATMUL(n3, avx2)
KV_MATMUL(n4, avx2)
KV_MATMUL(n6, avx2)
