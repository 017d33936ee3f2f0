/* merge.h: joins neighbouring symbols, the best pair first, until none is left: what BPE does by rank and SPM
 * by score. A linked list of symbols and a heap of pairs: O(n log n) for a text of n symbols. */
#pragma once

#include "base/memory.h"
#include "base/status.h"

typedef struct kv_symbol {
    int32_t prev, next;  /* neighbours, -1 at the ends */
    int32_t start, size; /* bytes of the text; 0 bytes: joined to its left neighbour */
    int32_t id;          /* token, -1 if the symbol is none */
} kv_symbol;

typedef struct kv_merge_pair {
    uint64_t order; /* order of the rule, then position: smallest first */
    int32_t size;   /* of both together; another size now means that the pair is gone */
    int32_t id;
} kv_merge_pair;

typedef struct kv_merger {
    KV_VEC(kv_symbol) symbols; /* after kv_merge_run, symbols 0, next, next ... are the result */
    KV_VEC(kv_merge_pair) heap;
} kv_merger;

/* Whether a and b may be joined: the token they become and when (smaller first; ties go to the left). */
typedef bool (*kv_merge_rule)(const void *context, const kv_symbol *a, const kv_symbol *b, uint32_t *order,
                              int32_t *id);

/* Appends a symbol behind the last one. */
kv_status kv_merge_add(kv_merger *m, int32_t size, int32_t id);
kv_status kv_merge_run(kv_merger *m, kv_merge_rule rule, const void *context);
/* Forgets the symbols, keeps the memory for the next text. */
void kv_merge_restart(kv_merger *m);
void kv_merger_clear(kv_merger *m);
