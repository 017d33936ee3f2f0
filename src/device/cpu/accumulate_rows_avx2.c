/* accumulate_rows_avx2.c: accumulate for K and V in rows, AVX2. */
#include "device/cpu/accumulate_rows_vec.h"

KV_ACCUMULATE_ROWS(f32, avx2)
KV_ACCUMULATE_ROWS(f16, avx2)
KV_ACCUMULATE_ROWS(bf16, avx2)
KV_ACCUMULATE_ROWS(q8_0, avx2)
