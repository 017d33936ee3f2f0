/* sampler.h: one token from a row of logits. Order: bias, penalties, top-k, top-p, min-p, temperature, draw.
 * The same seed, logits and history give the same token on every machine (as far as its exp() agrees). */
#pragma once

#include "base/status.h"

typedef struct kv_sampler kv_sampler;

/* Checks every option (NaN, negative counts, bias ids outside the vocabulary: KVANT_INVALID naming the
 * option). NULL options are the defaults. Copies what it needs. */
kv_status kv_sampler_create(kv_sampler **out, int32_t n_vocab, const kvant_sampler_options *options);
void kv_sampler_destroy(kv_sampler *s);
/* Draws from n_vocab logits. Does not allocate. Equal logits: the lower id comes first. A logit that is NaN
 * or +inf, or none above -inf, is KVANT_FAILED. One random number is used up, none if greedy. */
kv_status kv_sampler_draw(int32_t *out, kv_sampler *s, const float *logits);
/* Adds to the history that the penalties look back on; ids outside the vocabulary are ignored. */
void kv_sampler_accept(kv_sampler *s, int32_t token);
/* Forgets the history and starts the random numbers again. */
void kv_sampler_reset(kv_sampler *s);
