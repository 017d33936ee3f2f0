/* vec.h: one vocabulary for the vectors of every instruction set, so that a kernel whose shape does not
 * depend on the set is written once. A `*_vec.h` header holds such kernels in terms of kv_vec; a file
 * `*_avx512.c` or `*_avx2.c` compiles it with its flags, which choose the vectors here. A vector holds
 * KV_LANES floats (kv_vec) or integers of 32 bits (kv_vec_int); `n` is how many of them a load or store
 * touches, from 1 to KV_LANES, the others read as 0. */
#pragma once

#if defined(__AVX512F__)
#include "device/cpu/vec_avx512.h"
#elif defined(__AVX2__)
#include "device/cpu/vec_avx2.h"
#else
#error "vec.h needs the compiler flags of an instruction set"
#endif

/* A kernel body that takes the load of a dtype as a parameter, compiled once for each. */
#define KV_TEMPLATE static inline __attribute__((always_inline))

/* A loop whose count is a constant once inlined: it is unrolled, so that arrays indexed by i become
 * registers. */
#if defined(__clang__)
#define KV_REPEAT(i, n) _Pragma("clang loop unroll(full)") for (int i = 0; i < (n); i++)
#else
#define KV_REPEAT(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)
#endif
