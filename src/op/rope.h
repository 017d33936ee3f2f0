/* rope.h: rotary position embedding (Su et al. 2021), as one parameter block and one routine for the forward
 * pass, the turn of a query and the shift of a key. All scalings (linear, Llama-3 factors, YaRN by Peng et
 * al. 2023, LongRoPE) end as one frequency per pair and one magnitude. */
#pragma once

#include "base/status.h"

typedef enum kv_rope_pairing {
    KV_ROPE_ADJACENT, /* pair i is (2i, 2i + 1): "norm" */
    KV_ROPE_HALVES    /* pair i is (i, i + n_rot / 2): "neox" */
} kv_rope_pairing;

/* How a model rotates. Dimensions from n_rot on are left alone (partial rotary). */
typedef struct kv_rope {
    int32_t n_rot; /* even; 0: no rotation at all */
    kv_rope_pairing pairing;
    float magnitude;    /* YaRN's factor on both Q and K of the forward pass; 1 otherwise */
    const double *freq; /* n_rot / 2 angles per position */
} kv_rope;

typedef struct kv_rope_spec {
    int32_t n_rot;
    double base;
    double linear;                         /* positions are divided by it; 1 = off */
    const float *factors;                  /* n_rot / 2 divisors of the frequencies, or NULL */
    double yarn_factor;                    /* > 1: YaRN */
    double yarn_beta_fast, yarn_beta_slow; /* rotations at the ends of the ramp: 32 and 1 */
    int32_t n_ctx_original;
} kv_rope_spec;

/* freq[n_rot / 2] of the spec. */
void kv_rope_frequencies(double *freq, const kv_rope_spec *spec);

/* One row of a table: cos and sin of `angle * freq[i]`, times magnitude: row[0 .. n/2) cosines, [n/2 .. n)
 * sines. */
void kv_rope_table_row(float *row, const kv_rope *rope, double position, float magnitude);
/* Rotates one head in place by a table row. */
void kv_rope_rotate(float *head, const kv_rope *rope, const float *row);
