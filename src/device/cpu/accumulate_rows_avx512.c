/* accumulate_rows_avx512.c: accumulate for K and V in rows, AVX-512. */
#include "device/cpu/accumulate_rows_vec.h"

KV_ACCUMULATE_ROWS(f32, avx512)
KV_ACCUMULATE_ROWS(f16, avx512)
KV_ACCUMULATE_ROWS(bf16, avx512)
KV_ACCUMULATE_ROWS(q8_0, avx512)
