/* bpe_merges.c: reads the merges and keeps them in an open hash table keyed by the pair of ids. */
#include "text/bpe_merges.h"

#include <string.h>

struct kv_bpe_merge {
    int32_t left, right; /* left -1: free */
    int32_t result;
    uint32_t rank;
};

static struct kv_bpe_merge *probe(const kv_bpe_merges *m, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t i = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & m->slot_mask;
    for (;; i = (i + 1) & m->slot_mask) {
        struct kv_bpe_merge *slot = &m->slots[i];
        if (slot->left < 0 || (slot->left == left && slot->right == right)) return slot;
    }
}

bool kv_bpe_merges_rule(const void *merges, const kv_symbol *a, const kv_symbol *b, uint32_t *order,
                        int32_t *id) {
    if (a->id < 0 || b->id < 0) return false;
    const struct kv_bpe_merge *merge = probe(merges, a->id, b->id);
    if (merge->left < 0) return false;
    *order = merge->rank;
    *id = merge->result;
    return true;
}

static kv_status malformed(size_t rank, const char *what) {
    return kv_fail(KVANT_FORMAT, "tokenizer.ggml.merges: merge %zu: %s", rank, what);
}

/* "left right": the first space that is not the first byte separates them. */
static kv_status add(kv_bpe_merges *m, const kv_vocabulary *v, kv_gguf_string line, size_t rank,
                     char *joined) {
    const char *space = line.size > 1 ? memchr(line.at + 1, ' ', line.size - 1) : NULL;
    if (!space) return malformed(rank, "no space between two parts");
    size_t n_left = (size_t)(space - line.at), n_right = line.size - n_left - 1;
    if (n_left + n_right > v->longest) return malformed(rank, "the result is not in the vocabulary");
    memcpy(joined, line.at, n_left);
    memcpy(joined + n_left, space + 1, n_right);
    int32_t left = kv_vocabulary_find(v, joined, n_left);
    int32_t right = kv_vocabulary_find(v, joined + n_left, n_right);
    int32_t result = kv_vocabulary_find(v, joined, n_left + n_right);
    if (left < 0 || right < 0) return malformed(rank, "a part is not in the vocabulary");
    if (result < 0) return malformed(rank, "the result is not in the vocabulary");
    if (v->types[result] == KV_TOKEN_CONTROL) return KVANT_OK; /* text never becomes a control token */
    struct kv_bpe_merge *slot = probe(m, left, right);
    if (slot->left < 0) *slot = (struct kv_bpe_merge){left, right, result, (uint32_t)rank};
    return KVANT_OK;
}

kv_status kv_bpe_merges_init(kv_bpe_merges *m, const kv_vocabulary *v, const kv_gguf *g) {
    kv_status status;
    kv_gguf_string *lines = NULL;
    char *joined = NULL;
    size_t n, n_slots = 16;
    *m = (kv_bpe_merges){0};
    KV_TRY_DONE(kv_gguf_get_string_array(g, "tokenizer.ggml.merges", KV_GGUF_REQUIRED, &lines, &n));
    if (n > INT32_MAX / 4) {
        status = kv_fail(KVANT_FORMAT, "tokenizer.ggml.merges: %zu merges, at most %d", n, INT32_MAX / 4);
        goto done;
    }
    while (n_slots < 2 * n) n_slots *= 2;
    m->slots = kv_alloc(n_slots, sizeof *m->slots);
    joined = kv_alloc(v->longest, 1);
    if (!m->slots || !joined) {
        status = KVANT_NO_MEMORY;
        goto done;
    }
    memset(m->slots, 0xff, n_slots * sizeof *m->slots);
    m->slot_mask = (uint32_t)n_slots - 1;
    for (size_t i = 0; i < n; i++) KV_TRY_DONE(add(m, v, lines[i], i, joined));
done:
    kv_free(lines);
    kv_free(joined);
    if (status) kv_bpe_merges_clear(m);
    return status;
}

void kv_bpe_merges_clear(kv_bpe_merges *m) {
    kv_free(m->slots);
    *m = (kv_bpe_merges){0};
}
