/* fuzz_tokenizer.c: a text through a small vocabulary and back. The first byte chooses the vocabulary and the
 * options; with PATCH, the next bytes change the vocabulary's file first {how many, then offset (2 bytes) and
 * value each}, and creating it may fail, but nothing else. The rest is the text. */
#include "text/tokenizer.h"
#include "vocab_builder.h"

enum { PARSE_SPECIAL = 4, CONTINUES = 8, PATCH = 16, MAX_PATCHES = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whether token i begins a text of its own, behind the start or a user-defined token: then it has the space
 * prefix that its vocabulary may put in front of one. */
static bool begins_text(const kv_tokenizer *t, const kv_tokens *tokens, size_t i) {
    if (!kv_tokenizer_drops_leading_space(t)) return false;
    if (kv_tokenizer_type(t, tokens->at[i]) == KV_TOKEN_USER_DEFINED) return false;
    return i == 0 || kv_tokenizer_type(t, tokens->at[i - 1]) == KV_TOKEN_USER_DEFINED;
}

/* Piece after piece must give the text back; U+2581 reads as a space in SentencePiece vocabularies. */
static void check_round_trip(const kv_tokenizer *t, const kv_tokens *tokens, const char *text, size_t size) {
    size_t at = 0;
    bool spm = strcmp(kv_tokenizer_model(t), "bpe") != 0;
    for (size_t i = 0; i + 3 <= size; i++)
        if (spm && memcmp(text + i, "\xe2\x96\x81", 3) == 0) return;
    for (size_t i = 0; i < tokens->count; i++) {
        const char *bytes;
        size_t n;
        if (kv_tokenizer_piece(t, tokens->at[i], true, &bytes, &n)) abort();
        if (begins_text(t, tokens, i)) {
            if (!n || *bytes != ' ') abort();
            bytes++, n--;
        }
        if (n > size - at || memcmp(text + at, bytes, n) != 0) abort();
        at += n;
    }
    if (at != size) abort();
}

static void check_text(const kv_tokenizer *t, const char *text, size_t size, kv_encode_options options,
                       bool complete) {
    kv_tokens tokens = {0};
    if (kv_tokenizer_encode(t, text, size, options, &tokens)) abort();
    for (size_t i = 0; i < tokens.count; i++) {
        if (tokens.at[i] < 0 || tokens.at[i] >= kv_tokenizer_size(t)) abort();
        if (!options.parse_special && kv_tokenizer_type(t, tokens.at[i]) == KV_TOKEN_CONTROL) abort();
    }
    if (complete && !options.parse_special && !options.continues) check_round_trip(t, &tokens, text, size);
    kv_vec_clear(&tokens);
}

static vocab_bytes build(size_t i) {
    static vocab_spec spec;
    vocab_builders[i](&spec);
    return vocab_write(&spec);
}

/* The vocabularies as they are, made once. */
static const kv_tokenizer *original(size_t i) {
    static struct {
        vocab_bytes bytes;
        kv_gguf *gguf;
        kv_tokenizer *tokenizer;
    } made[N_VOCAB_BUILDERS];
    if (!made[i].tokenizer) {
        made[i].bytes = build(i);
        if (kv_gguf_open_memory(&made[i].gguf, made[i].bytes.at, made[i].bytes.count)) abort();
        if (kv_tokenizer_create(&made[i].tokenizer, made[i].gguf)) abort();
    }
    return made[i].tokenizer;
}

static void check_patched(size_t i, const uint8_t *data, size_t size, kv_encode_options options) {
    kv_gguf *g = NULL;
    kv_tokenizer *t = NULL;
    size_t n_patches = *data++ % MAX_PATCHES;
    vocab_bytes bytes = build(i);
    size--;
    for (; n_patches && size >= 3; n_patches--, data += 3, size -= 3)
        bytes.at[((size_t)data[0] << 8 | data[1]) % bytes.count] = data[2];
    if (!kv_gguf_open_memory(&g, bytes.at, bytes.count) && !kv_tokenizer_create(&t, g))
        check_text(t, (const char *)data, size, options, false);
    kv_tokenizer_destroy(t);
    kv_gguf_close(g);
    kv_vec_clear(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    uint8_t choice = *data++;
    kv_encode_options options = {.parse_special = choice & PARSE_SPECIAL, .continues = choice & CONTINUES};
    size_t i = (choice & 3) % N_VOCAB_BUILDERS;
    size--;
    if (choice & PATCH)
        check_patched(i, data, size, options);
    else
        check_text(original(i), (const char *)data, size, options, true);
    return 0;
}
