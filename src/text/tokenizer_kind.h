/* tokenizer_kind.h: what tokenizer.c and the kinds (tokenizers.inc) share. tokenizer.c reads the vocabulary
 * and the special ids and finds special tokens in text; a kind tokenizes the text between them and says what
 * a token's stored text means. */
#pragma once

#include "text/tokenizer.h"
#include "text/vocabulary.h"

typedef struct kv_tokenizer_kind {
    const char *name;  /* "bpe" */
    const char *model; /* the value of tokenizer.ggml.model */
    bool adds_bos;     /* where the file does not say */
    /* Special ids where the file does not name them; -1 = none. */
    int32_t bos, eos, unknown;
    /* Reads what else the kind needs into t->state. */
    kv_status (*create)(kv_tokenizer *t, const kv_gguf *g);
    void (*destroy)(void *state);
    /* Appends the tokens of size > 0 bytes. `opens`: at the start, or right behind a special token. */
    kv_status (*encode)(const kv_tokenizer *t, const char *text, size_t size, bool opens, kv_tokens *out);
    /* Writes the bytes that a stored text stands for, at most text.size; returns how many. */
    size_t (*decode)(kv_gguf_string text, kv_token_type type, char *out);
} kv_tokenizer_kind;

struct kv_tokenizer {
    const kv_tokenizer_kind *kind;
    void *state;     /* the kind's own */
    const char *pre; /* "" if the kind has none */
    kv_vocabulary vocab;
    kv_gguf_string *pieces; /* decoded, in piece_bytes */
    char *piece_bytes;
    int32_t bos, eos, unknown;
    bool adds_bos, adds_eos;
    bool space_prefix; /* SPM: a text begins with a space of its own */
    bool eats_space;   /* blanks behind a special token belong to it */
    int32_t ends[24];
    int32_t n_ends;
};

#define KV_TOKENIZER(name) extern const kv_tokenizer_kind kv_tokenizer_##name;
#include "text/tokenizers.inc"
#undef KV_TOKENIZER
