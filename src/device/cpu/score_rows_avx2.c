/* score_rows_avx2.c: score for K and V in rows, AVX2. */
#include "device/cpu/score_rows_vec.h"

KV_SCORE_ROWS(f32, avx2)
KV_SCORE_ROWS(f16, avx2)
KV_SCORE_ROWS(bf16, avx2)
KV_SCORE_ROWS(q8_0, avx2)
