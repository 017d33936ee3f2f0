/* score_rows_avx512.c: score for K and V in rows, AVX-512. */
#include "device/cpu/score_rows_vec.h"

KV_SCORE_ROWS(f32, avx512)
KV_SCORE_ROWS(f16, avx512)
KV_SCORE_ROWS(bf16, avx512)
KV_SCORE_ROWS(q8_0, avx512)
