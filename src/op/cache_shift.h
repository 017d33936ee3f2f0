/* cache_shift.h: keys of a store rotated in place by a difference of positions (the eager shift). Rotations
 * add up, so a key K' = M R(p) (k - mean) becomes M R(p + delta) (k - mean): right with a centre and without,
 * and with the magnitude M in it once. What a head's rotation reaches is decoded, rotated, and coded again;
 * blocks that it does not reach (partial rotary) keep their bytes. */
#pragma once

#include "op/op.h"
#include "op/store.h"

/* The key of cells[i] is rotated by deltas[i]; no cell occurs twice. */
typedef struct kv_cell_turns {
    int32_t n;
    const int32_t *cells;
    const int64_t *deltas;
} kv_cell_turns;

typedef struct kv_cache_shift_params {
    const kv_rope *rope; /* n_rot > 0 */
    kv_store *store;
    const kv_cell_turns *turns; /* read when the node runs */
} kv_cache_shift_params;

void kv_cache_shift_keys(kv_graph *g, const kv_cache_shift_params *p);

/* Numbers at the start of a stored head that are decoded and coded again: those that the rotation reaches,
 * with what the transform mixes into them, in whole blocks. */
int32_t kv_shift_reach(const kv_store *s, const kv_rope *rope);
/* The decoded numbers of one stored head, `reach` of them, rotated by a table row of magnitude 1. */
void kv_shift_head(float *stored, int32_t reach, const kv_head_code *code, const kv_rope *rope,
                   const float *row);
