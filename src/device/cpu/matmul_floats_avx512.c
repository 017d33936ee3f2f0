/* matmul_floats_avx512.c: matmul kernels for weights that are floating point numbers, AVX-512. */
#include "device/cpu/matmul_floats_vec.h"

KV_MATMUL_FLOATS(f32, 4, avx512)
KV_MATMUL_FLOATS(f16, 2, avx512)
KV_MATMUL_FLOATS(bf16, 2, avx512)
