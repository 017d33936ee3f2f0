/* fit.h: the search for scales and quants behind the encoders of the K-quants and of the codebook formats.
 * These formats cut a block into sub-blocks whose own scales are small integers times an f16 of the block. */
#pragma once

#include <stdint.h>

enum { KV_FIT_MAX_ELEMS = 256, KV_FIT_MAX_SUBS = 16 };

/* x[i] ~ scale * scales[sub] * level[i]                    kv_fit_symmetric
 * x[i] ~ scale * scales[sub] * level[i] - min * mins[sub]  kv_fit_affine: levels from 0 to level_max, scales
 * and mins from 0 to scale_max */
typedef struct kv_fit_format {
    int32_t n_subs, sub_elems;
    int32_t scale_min, scale_max;
    int32_t level_min, level_max; /* every integer between them is a level, */
    const int8_t *levels;         /* or only these sixteen, ascending, the ends among them */
} kv_fit_format;

typedef struct kv_fit {
    uint16_t scale, min; /* f16, finite */
    int8_t scales[KV_FIT_MAX_SUBS], mins[KV_FIT_MAX_SUBS];
    int8_t levels[KV_FIT_MAX_ELEMS];
} kv_fit;

/* Fits n_subs * sub_elems finite numbers. The error that is made small is weighted: |x| + rms(x), because
 * large weights meet large activations more often than chance. Zeros give zeros; any float, NaN too, gives a
 * block that decodes. */
void kv_fit_symmetric(kv_fit *out, const float *x, const kv_fit_format *format);
void kv_fit_affine(kv_fit *out, const float *x, const kv_fit_format *format);

/* The place of a level among the sixteen. */
static inline int32_t kv_fit_level_index(const int8_t levels[16], int8_t level) {
    int32_t i = 0;
    while (i < 15 && levels[i] < level) i++;
    return i;
}
