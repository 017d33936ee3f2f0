/* vocabulary.h: the tokens of a file: their stored text, type and score, all checked; text to token in
 * constant time; which special token begins at a place of a text. Knows nothing of how text is split. */
#pragma once

#include "base/status.h"
#include "gguf/gguf.h"
#include "text/tokenizer.h"

typedef struct kv_vocabulary {
    int32_t count;
    size_t longest;                   /* bytes of the longest text */
    kv_gguf_string *texts;            /* as stored; the bytes belong to the file */
    uint8_t *types;                   /* kv_token_type */
    float *scores;                    /* NULL if the file has none */
    struct kv_vocabulary_slot *slots; /* hash table, a power of two */
    uint32_t slot_mask;
    /* Distinct byte lengths of the special tokens that begin with byte b, longest first:
     * special_sizes[special_first[b] .. special_first[b + 1]). */
    uint32_t *special_sizes;
    uint32_t special_first[257];
} kv_vocabulary;

/* Reads tokenizer.ggml.tokens, token_type and scores. On failure v is cleared. */
kv_status kv_vocabulary_init(kv_vocabulary *v, const kv_gguf *g);
void kv_vocabulary_clear(kv_vocabulary *v);

/* -1 if none; the lowest id where several tokens share a text. */
int32_t kv_vocabulary_find(const kv_vocabulary *v, const char *text, size_t size);
/* As find, but only tokens that ordinary text may become: never control, unknown or byte tokens. */
int32_t kv_vocabulary_find_plain(const kv_vocabulary *v, const char *text, size_t size);
/* The longest user-defined token (with `control`, also control and unknown tokens) at the start of text; -1
 * if none. Control tokens of more than `control` bytes are not considered. */
int32_t kv_vocabulary_special_at(const kv_vocabulary *v, const char *text, size_t size, size_t control);
