/* bpe_merges.h: the merges of a BPE vocabulary (tokenizer.ggml.merges), by token ids: which pair becomes
 * which token, and its rank. Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units",
 * 2016. */
#pragma once

#include "text/merge.h"
#include "text/vocabulary.h"

typedef struct kv_bpe_merges {
    struct kv_bpe_merge *slots; /* hash table, a power of two */
    uint32_t slot_mask;
} kv_bpe_merges;

/* Every merge must be two tokens of the vocabulary that together are a third. On failure m is cleared. */
kv_status kv_bpe_merges_init(kv_bpe_merges *m, const kv_vocabulary *v, const kv_gguf *g);
void kv_bpe_merges_clear(kv_bpe_merges *m);
/* The kv_merge_rule of a kv_bpe_merges. */
bool kv_bpe_merges_rule(const void *merges, const kv_symbol *a, const kv_symbol *b, uint32_t *order,
                        int32_t *id);
