/* matmul_floats_avx2.c: matmul kernels for weights that are floating point numbers, AVX2. */
#include "device/cpu/matmul_floats_vec.h"

KV_MATMUL_FLOATS(f32, 4, avx2)
KV_MATMUL_FLOATS(f16, 2, avx2)
KV_MATMUL_FLOATS(bf16, 2, avx2)
