/* tokenizer.h: text to tokens and back, for the vocabulary kinds found in GGUF files. One interface; the
 * kinds (BPE, SPM, ...) are one file each with a kv_tokenizer_kind and a line in tokenizers.inc;
 * pre-tokenizer patterns are a table. Immutable once made: any number of threads may use one. */
#pragma once

#include "base/status.h"
#include "gguf/gguf.h"

typedef struct kv_tokenizer kv_tokenizer;

typedef enum kv_token_type { /* the numbers of tokenizer.ggml.token_type */
                             KV_TOKEN_NORMAL = 1,
                             KV_TOKEN_UNKNOWN,
                             KV_TOKEN_CONTROL,
                             KV_TOKEN_USER_DEFINED,
                             KV_TOKEN_UNUSED,
                             KV_TOKEN_BYTE
} kv_token_type;

/* Token text, scores, merges, special ids: all checked; unknown models or pre-tokenizers are an error that
 * names them. Borrows `g` until destroyed. */
kv_status kv_tokenizer_create(kv_tokenizer **out, const kv_gguf *g);
void kv_tokenizer_destroy(kv_tokenizer *t);

int32_t kv_tokenizer_size(const kv_tokenizer *t);
const char *kv_tokenizer_model(const kv_tokenizer *t); /* "bpe", "spm", "spm-ranked" */
const char *kv_tokenizer_pre(const kv_tokenizer *t);   /* "smollm", "qwen2", ...; "" if the kind has none */
/* Special ids; -1 = none. */
int32_t kv_tokenizer_bos(const kv_tokenizer *t);
int32_t kv_tokenizer_eos(const kv_tokenizer *t);
bool kv_tokenizer_adds_bos(const kv_tokenizer *t);
bool kv_tokenizer_adds_eos(const kv_tokenizer *t);
/* EOS, end of turn and the like (<|im_end|>, <end_of_turn>, <|eot_id|>, ...). */
bool kv_tokenizer_is_end(const kv_tokenizer *t, int32_t token);
kv_token_type kv_tokenizer_type(const kv_tokenizer *t, int32_t token);
/* The token whose stored text is exactly this; -1 if none. */
int32_t kv_tokenizer_find(const kv_tokenizer *t, const char *text, size_t size);

/* A growing list of tokens; the caller clears it with kv_vec_clear. */
typedef struct kv_tokens {
    int32_t *at;
    size_t count, capacity;
} kv_tokens;

typedef struct kv_text_range {
    size_t first, end; /* bytes [first, end) */
} kv_text_range;

typedef struct kv_encode_options {
    bool add_special;   /* the BOS/EOS that the model asks for */
    bool parse_special; /* control tokens written in the text become tokens */
    bool continues;     /* the text goes on from earlier tokens: no space prefix, no BOS */
    /* With parse_special: where the text is to be taken literally all the same (a message's content).
     * Ascending, disjoint, borrowed during the call. */
    const kv_text_range *literal;
    size_t n_literal;
} kv_encode_options;

/* Appends the tokens of any bytes (at most KV_TEXT_BYTES_MAX); on failure `out` is as before. O(n log n)
 * time, also for 1 MB of one letter. What a byte-level vocabulary has no letter for becomes U+FFFD. */
#define KV_TEXT_BYTES_MAX (INT32_MAX / 4)
kv_status kv_tokenizer_encode(const kv_tokenizer *t, const char *text, size_t size, kv_encode_options options,
                              kv_tokens *out);
/* The bytes of a token as text: byte tokens as their byte, BPE letters mapped back. Control tokens are empty
 * unless `special`. Borrowed from the tokenizer. */
kv_status kv_tokenizer_piece(const kv_tokenizer *t, int32_t token, bool special, const char **bytes,
                             size_t *size);
/* Whether decoding drops one space at the very start of a text (SPM with a space prefix). */
bool kv_tokenizer_drops_leading_space(const kv_tokenizer *t);
