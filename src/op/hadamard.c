/* hadamard.c: log2(block) rounds of sums and differences, scaled once at the end. */
#include "op/hadamard.h"

#include <math.h>

static void round_of(float *x, int32_t block, int32_t step) {
    for (int32_t i = 0; i < block; i += 2 * step)
        for (int32_t j = i; j < i + step; j++) {
            float a = x[j], b = x[j + step];
            x[j] = a + b;
            x[j + step] = a - b;
        }
}

void kv_hadamard(float *x, int32_t n, int32_t block) {
    const float scale = 1 / sqrtf((float)block);
    for (int32_t at = 0; block > 1 && at < n; at += block) {
        for (int32_t step = 1; step < block; step *= 2) round_of(x + at, block, step);
        for (int32_t i = 0; i < block; i++) x[at + i] *= scale;
    }
}
