/* pretokenizer.h: cuts a text into the words that BPE works on, with the patterns that the vocabulary was
 * trained with (tokenizer.ggml.pre). The patterns are a table, pretokenizers.inc. Compiled once, used by any
 * thread. */
#pragma once

#include "base/memory.h"
#include "base/status.h"

typedef struct kv_pretokenizer {
    const char *names[16]; /* values of tokenizer.ggml.pre, NULL-terminated; the first is the one shown */
    const char
        *patterns[8]; /* PCRE2, each applied to the pieces that the one before has left; NULL-terminated */
    bool whole_words; /* a word that is a token is that token, whatever the merges say */
    bool adds_bos;    /* where the file does not say */
} kv_pretokenizer;

/* Unknown names: KVANT_UNSUPPORTED and a list of those there are. */
kv_status kv_pretokenizer_find(const kv_pretokenizer **out, const char *name, size_t size);

typedef struct kv_splitter kv_splitter;
kv_status kv_splitter_create(kv_splitter **out, const kv_pretokenizer *p);
void kv_splitter_destroy(kv_splitter *s);

typedef struct kv_words {
    size_t *at; /* where each word ends; they follow one another without gaps */
    size_t count, capacity;
} kv_words;

/* Appends the words of any bytes; a run of invalid UTF-8 is a word of its own. */
kv_status kv_splitter_run(const kv_splitter *s, const char *text, size_t size, kv_words *words);
