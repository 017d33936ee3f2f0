/* centre.h: centred keys. What ruins keys of few bits is mostly a constant: the mean of a head's keys before
 * rotation, large in a few rotary pairs. A store with a centre codes K' = M R(p) (k - mean) and attention
 * adds the rest of the score exactly, for any mean: with q the query as it meets the cell (rotated, turned,
 * with the magnitude M), o the position that cell 0 of the cell's page would have been rotated by, and c the
 * cell's index in its page,
 *
 *     q . M R(p) mean  =  (R(-o) q) . table[c]        table[c] = M R(c) mean,   p = o + c
 *
 * so that one table serves all pages, and shifts, copies and layouts do not touch it. The mean is zero
 * outside the n_pairs strongest rotary pairs of a head: 2 n_pairs products a cell and query head. */
#pragma once

#include "base/status.h"
#include "op/rope.h"

enum { KV_CENTRE_CELLS = 64, KV_CENTRE_LANES = 16 }; /* of a table: a page of the cache; side by side */

/* Of one layer. Borrows its arrays. */
typedef struct kv_centre {
    int32_t n_pairs;      /* of each head; at least 1 */
    const int32_t *pairs; /* heads x n_pairs: rotary pairs, ascending */
    const float *mean;    /* heads x n_pairs x 2: both numbers of a pair */
    /* heads x (KV_CENTRE_CELLS / KV_CENTRE_LANES) tiles x 2 n_pairs x KV_CENTRE_LANES cells */
    const float *table;
} kv_centre;

/* Where the two numbers of pair i lie in a head. */
static inline int32_t kv_rope_first(const kv_rope *rope, int32_t i) {
    return rope->pairing == KV_ROPE_HALVES ? i : 2 * i;
}
static inline int32_t kv_rope_second(const kv_rope *rope, int32_t i) {
    return rope->pairing == KV_ROPE_HALVES ? i + rope->n_rot / 2 : 2 * i + 1;
}

/* Floats of a table. */
static inline size_t kv_centre_table_floats(int32_t n_heads, int32_t n_pairs) {
    return (size_t)n_heads * KV_CENTRE_CELLS * 2 * (size_t)n_pairs;
}
/* Fills a table from pairs and mean. */
void kv_centre_fill_table(float *table, const kv_centre *c, int32_t n_heads, const kv_rope *rope);
/* keys (n_heads x dim, not rotated) += sign * mean */
void kv_centre_add(float *keys, const kv_centre *c, int32_t n_heads, int32_t dim, const kv_rope *rope,
                   float sign);
