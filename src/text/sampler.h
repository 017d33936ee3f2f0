/* sampler.h: one token from a row of logits. Order: bias, penalties, top-k, top-p, min-p, temperature, draw.
 * The same seed, logits and history give the same token on every machine. */
#pragma once

#include "base/status.h"

typedef struct kv_sampler kv_sampler;

/* Validates every option (NaN, negative counts, bias ids outside the vocabulary: KVANT_INVALID naming the
 * option). */
kv_status kv_sampler_create(kv_sampler **out, int32_t n_vocab, const kvant_sampler_options *options);
void kv_sampler_destroy(kv_sampler *s);
/* Does not allocate. Ties go to the lower id. All logits NaN or -inf is KVANT_FAILED. */
kv_status kv_sampler_draw(int32_t *out, kv_sampler *s, const float *logits);
void kv_sampler_accept(kv_sampler *s, int32_t token);
void kv_sampler_reset(kv_sampler *s);
