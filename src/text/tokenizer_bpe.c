/* tokenizer_bpe.c: byte-level BPE (GPT-2, Llama 3, Qwen, ...). Text is cut into words, each byte of a word is
 * a symbol, and symbols are joined by rank. The stored texts spell bytes as letters: GPT-2's alphabet, where
 * the 68 bytes that are no printable Latin-1 character are written as U+0100 and up. */
#include "base/memory.h"
#include "text/bpe_merges.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_kind.h"
#include "text/utf8.h"

#include <string.h>

typedef struct bpe {
    kv_splitter *splitter;
    kv_bpe_merges merges;
    bool whole_words;
    int32_t byte_tokens[256]; /* the token of a single byte, -1 if there is none */
} bpe;

/* ---- the alphabet ---- */

static bool is_printable(uint32_t byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* The byte that a letter stands for, -1 for other characters. The letters from U+0100 on are the unprintable
 * bytes in order: 0 to 32, 127 to 160, 173. */
static int32_t letter_to_byte(uint32_t code) {
    if (code < 256) return is_printable(code) ? (int32_t)code : -1;
    if (code <= 256 + 32) return (int32_t)code - 256;
    if (code <= 256 + 66) return (int32_t)code - 256 - 33 + 127;
    return code == 256 + 67 ? 173 : -1;
}

static uint32_t byte_to_letter(uint8_t byte) {
    if (is_printable(byte)) return byte;
    if (byte <= 32) return 256u + byte;
    return byte == 173 ? 256u + 67 : 256u + 33 + byte - 127;
}

static size_t decode(kv_gguf_string text, kv_token_type type, char *out) {
    if (type != KV_TOKEN_NORMAL && type != KV_TOKEN_UNUSED) {
        memcpy(out, text.at, text.size);
        return text.size;
    }
    size_t n = 0;
    for (size_t i = 0; i < text.size;) {
        uint32_t code;
        int32_t length = kv_utf8_decode(text.at + i, text.size - i, &code);
        int32_t byte = length ? letter_to_byte(code) : -1;
        if (length == 0) length = 1;
        if (byte >= 0) {
            out[n++] = (char)byte;
        } else { /* not of the alphabet: stands for itself */
            memcpy(out + n, text.at + i, (size_t)length);
            n += (size_t)length;
        }
        i += (size_t)length;
    }
    return n;
}

/* ---- encoding ---- */

/* Memory of one call, for all its words. */
typedef struct work {
    const kv_tokenizer *t;
    const bpe *b;
    kv_merger merger;
    kv_words words;
    kv_tokens *out;
} work;

/* A word that is a token as a whole; -1 if not. */
static int32_t find_word(const kv_tokenizer *t, const char *word, size_t size) {
    char letters[512];
    size_t n = 0;
    if (size > sizeof letters / 2 || size > t->vocab.longest) return -1;
    for (size_t i = 0; i < size; i++)
        n += (size_t)kv_utf8_encode(byte_to_letter((uint8_t)word[i]), letters + n);
    return kv_vocabulary_find_plain(&t->vocab, letters, n);
}

/* A byte that the vocabulary cannot spell becomes U+FFFD, if it can spell that. */
static kv_status add_byte(work *w, uint8_t byte) {
    static const uint8_t replacement[3] = {0xef, 0xbf, 0xbd};
    const int32_t *tokens = w->b->byte_tokens;
    if (tokens[byte] >= 0) return kv_merge_add(&w->merger, 1, tokens[byte]);
    for (size_t i = 0; i < sizeof replacement; i++)
        if (tokens[replacement[i]] >= 0) KV_TRY(kv_merge_add(&w->merger, 1, tokens[replacement[i]]));
    return KVANT_OK;
}

static kv_status encode_word(work *w, const char *word, size_t size) {
    int32_t whole = w->b->whole_words ? find_word(w->t, word, size) : -1;
    if (whole >= 0) return kv_vec_push(w->out, whole) ? KVANT_OK : KVANT_NO_MEMORY;
    kv_merge_restart(&w->merger);
    for (size_t i = 0; i < size; i++) KV_TRY(add_byte(w, (uint8_t)word[i]));
    KV_TRY(kv_merge_run(&w->merger, kv_bpe_merges_rule, &w->b->merges));
    const kv_symbol *symbols = w->merger.symbols.at;
    for (int32_t i = w->merger.symbols.count ? 0 : -1; i >= 0; i = symbols[i].next)
        if (!kv_vec_push(w->out, symbols[i].id)) return KVANT_NO_MEMORY;
    return KVANT_OK;
}

static kv_status encode(const kv_tokenizer *t, const char *text, size_t size, bool opens, kv_tokens *out) {
    (void)opens;
    work w = {.t = t, .b = t->state, .out = out};
    kv_status status = kv_splitter_run(w.b->splitter, text, size, &w.words);
    for (size_t i = 0, start = 0; !status && i < w.words.count; start = w.words.at[i++])
        status = encode_word(&w, text + start, w.words.at[i] - start);
    kv_vec_clear(&w.words);
    kv_merger_clear(&w.merger);
    return status;
}

/* ---- creating ---- */

static void destroy(void *state) {
    bpe *b = state;
    if (!b) return;
    kv_splitter_destroy(b->splitter);
    kv_bpe_merges_clear(&b->merges);
    kv_free(b);
}

static void find_bytes(bpe *b, const kv_vocabulary *v) {
    for (int32_t byte = 0; byte < 256; byte++) {
        char letter[4];
        int32_t n = kv_utf8_encode(byte_to_letter((uint8_t)byte), letter);
        int32_t token = kv_vocabulary_find(v, letter, (size_t)n);
        b->byte_tokens[byte] = token >= 0 && v->types[token] == KV_TOKEN_NORMAL ? token : -1;
    }
}

static kv_status create(kv_tokenizer *t, const kv_gguf *g) {
    const kv_pretokenizer *pre;
    kv_gguf_string name = {"default", strlen("default")};
    KV_TRY(kv_gguf_get_string(g, "tokenizer.ggml.pre", KV_GGUF_OPTIONAL, &name));
    KV_TRY(kv_pretokenizer_find(&pre, name.at, name.size));
    bpe *b = t->state = kv_alloc(1, sizeof *b);
    if (!b) return KVANT_NO_MEMORY;
    KV_TRY(kv_splitter_create(&b->splitter, pre));
    KV_TRY(kv_bpe_merges_init(&b->merges, &t->vocab, g));
    find_bytes(b, &t->vocab);
    b->whole_words = pre->whole_words;
    t->pre = pre->names[0];
    t->adds_bos = pre->adds_bos;
    return KVANT_OK;
}

const kv_tokenizer_kind kv_tokenizer_bpe = {
    .name = "bpe",
    .model = "gpt2",
    .bos = -1,
    .eos = -1,
    .unknown = -1,
    .create = create,
    .destroy = destroy,
    .encode = encode,
    .decode = decode,
};
