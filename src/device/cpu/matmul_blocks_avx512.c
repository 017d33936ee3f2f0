/* matmul_blocks_avx512.c: matmul kernels for weights in blocks of 32, AVX-512 with VNNI. */
#include "device/cpu/matmul_blocks_vec.h"

KV_MATMUL(q4_0, avx512)
KV_MATMUL(q4_1, avx512)
KV_MATMUL(q5_0, avx512)
KV_MATMUL(q5_1, avx512)
KV_MATMUL(q8_0, avx512)
KV_MATMUL(iq4_nl, avx512)
KV_MATMUL(n3, avx512)
KV_MATMUL(n4, avx512)
KV_MATMUL(n6, avx512)
