/* vocabulary.c: reading and checking the token arrays, the hash table over the texts, the special tokens. */
#include "text/vocabulary.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct kv_vocabulary_slot {
    uint32_t hash;
    int32_t token; /* -1: free */
};

static uint32_t hash_text(const char *text, size_t size) { return (uint32_t)XXH3_64bits(text, size); }

/* The slot that holds this text, or the free one where it would go. */
static struct kv_vocabulary_slot *probe(const kv_vocabulary *v, const char *text, size_t size,
                                        uint32_t hash) {
    for (uint32_t i = hash & v->slot_mask;; i = (i + 1) & v->slot_mask) {
        struct kv_vocabulary_slot *slot = &v->slots[i];
        if (slot->token < 0) return slot;
        if (slot->hash != hash) continue;
        kv_gguf_string stored = v->texts[slot->token];
        if (stored.size == size && memcmp(stored.at, text, size) == 0) return slot;
    }
}

int32_t kv_vocabulary_find(const kv_vocabulary *v, const char *text, size_t size) {
    if (size > v->longest) return -1;
    return probe(v, text, size, hash_text(text, size))->token;
}

static bool is_plain(uint8_t type) {
    return type == KV_TOKEN_NORMAL || type == KV_TOKEN_USER_DEFINED || type == KV_TOKEN_UNUSED;
}

int32_t kv_vocabulary_find_plain(const kv_vocabulary *v, const char *text, size_t size) {
    int32_t token = kv_vocabulary_find(v, text, size);
    return token >= 0 && is_plain(v->types[token]) ? token : -1;
}

static kv_status index_texts(kv_vocabulary *v) {
    uint32_t n_slots = 16;
    while (n_slots < 2 * (uint32_t)v->count) n_slots *= 2;
    v->slots = kv_alloc(n_slots, sizeof *v->slots);
    if (!v->slots) return KVANT_NO_MEMORY;
    memset(v->slots, 0xff, n_slots * sizeof *v->slots);
    v->slot_mask = n_slots - 1;
    for (int32_t i = 0; i < v->count; i++) {
        kv_gguf_string text = v->texts[i];
        uint32_t hash = hash_text(text.at, text.size);
        struct kv_vocabulary_slot *slot = probe(v, text.at, text.size, hash);
        if (slot->token < 0) *slot = (struct kv_vocabulary_slot){hash, i};
        if (text.size > v->longest) v->longest = text.size;
    }
    return KVANT_OK;
}

/* ---- special tokens ---- */

static bool is_special(const kv_vocabulary *v, int32_t i) {
    uint8_t type = v->types[i];
    return v->texts[i].size > 0 &&
           (type == KV_TOKEN_CONTROL || type == KV_TOKEN_USER_DEFINED || type == KV_TOKEN_UNKNOWN);
}

static int compare_keys(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Keys {first byte, longest first} sort into the table that special_at walks. */
static kv_status index_specials(kv_vocabulary *v) {
    kv_status status = KVANT_NO_MEMORY;
    size_t n = 0, n_sizes = 0;
    uint64_t *keys = kv_alloc((size_t)v->count, sizeof *keys);
    v->special_sizes = kv_alloc((size_t)v->count, sizeof *v->special_sizes);
    if (!keys || !v->special_sizes) goto done;
    for (int32_t i = 0; i < v->count; i++)
        if (is_special(v, i))
            keys[n++] =
                (uint64_t)(uint8_t)v->texts[i].at[0] << 32 | (UINT32_MAX - (uint32_t)v->texts[i].size);
    qsort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 0, first = 0; first <= 256; first++) {
        v->special_first[first] = (uint32_t)n_sizes;
        for (; i < n && keys[i] >> 32 == first; i++)
            if (i == 0 || keys[i] != keys[i - 1])
                v->special_sizes[n_sizes++] = UINT32_MAX - (uint32_t)keys[i];
    }
    status = KVANT_OK;
done:
    kv_free(keys);
    return status;
}

int32_t kv_vocabulary_special_at(const kv_vocabulary *v, const char *text, size_t size, size_t control) {
    uint8_t first = (uint8_t)text[0];
    for (uint32_t i = v->special_first[first]; i < v->special_first[first + 1]; i++) {
        size_t n = v->special_sizes[i];
        int32_t token = n <= size ? kv_vocabulary_find(v, text, n) : -1;
        if (token >= 0 && is_special(v, token) && (v->types[token] == KV_TOKEN_USER_DEFINED || n <= control))
            return token;
    }
    return -1;
}

/* ---- reading ---- */

static kv_status read_texts(kv_vocabulary *v, const kv_gguf *g) {
    size_t n;
    KV_TRY(kv_gguf_get_string_array(g, "tokenizer.ggml.tokens", KV_GGUF_REQUIRED, &v->texts, &n));
    if (n == 0 || n > INT32_MAX / 4)
        return kv_fail(KVANT_FORMAT, "tokenizer.ggml.tokens: %zu tokens, expected 1 to %d", n, INT32_MAX / 4);
    v->count = (int32_t)n;
    for (size_t i = 0; i < n; i++)
        if (v->texts[i].size > INT32_MAX)
            return kv_fail(KVANT_FORMAT, "tokenizer.ggml.tokens: token %zu has %zu bytes", i,
                           v->texts[i].size);
    return KVANT_OK;
}

static kv_status check_length(const kv_vocabulary *v, const char *key, size_t n) {
    if (n == (size_t)v->count) return KVANT_OK;
    return kv_fail(KVANT_FORMAT, "%s: %zu entries for %d tokens", key, n, v->count);
}

static kv_status read_types(kv_vocabulary *v, const kv_gguf *g) {
    static const char *key = "tokenizer.ggml.token_type";
    kv_status status;
    size_t n;
    int32_t *types = NULL;
    v->types = kv_alloc((size_t)v->count, 1);
    if (!v->types) return KVANT_NO_MEMORY;
    memset(v->types, KV_TOKEN_NORMAL, (size_t)v->count);
    KV_TRY_DONE(kv_gguf_get_i32_array(g, key, KV_GGUF_OPTIONAL, &types, &n));
    if (!types) goto done;
    KV_TRY_DONE(check_length(v, key, n));
    for (int32_t i = 0; i < v->count; i++) {
        if (types[i] < 0 || types[i] > KV_TOKEN_BYTE) {
            status = kv_fail(KVANT_FORMAT, "%s: token %d has type %d, expected 0 to %d", key, i, types[i],
                             KV_TOKEN_BYTE);
            goto done;
        }
        if (types[i]) v->types[i] = (uint8_t)types[i]; /* 0, undefined, is normal */
    }
done:
    kv_free(types);
    return status;
}

static kv_status read_scores(kv_vocabulary *v, const kv_gguf *g) {
    static const char *key = "tokenizer.ggml.scores";
    size_t n;
    KV_TRY(kv_gguf_get_f32_array(g, key, KV_GGUF_OPTIONAL, &v->scores, &n));
    if (!v->scores) return KVANT_OK;
    KV_TRY(check_length(v, key, n));
    for (int32_t i = 0; i < v->count; i++)
        if (isnan(v->scores[i])) return kv_fail(KVANT_FORMAT, "%s: the score of token %d is NaN", key, i);
    return KVANT_OK;
}

kv_status kv_vocabulary_init(kv_vocabulary *v, const kv_gguf *g) {
    kv_status status;
    *v = (kv_vocabulary){0};
    KV_TRY_DONE(read_texts(v, g));
    KV_TRY_DONE(read_types(v, g));
    KV_TRY_DONE(read_scores(v, g));
    KV_TRY_DONE(index_texts(v));
    KV_TRY_DONE(index_specials(v));
done:
    if (status) kv_vocabulary_clear(v);
    return status;
}

void kv_vocabulary_clear(kv_vocabulary *v) {
    kv_free(v->texts);
    kv_free(v->types);
    kv_free(v->scores);
    kv_free(v->slots);
    kv_free(v->special_sizes);
    *v = (kv_vocabulary){0};
}
