/* tokenizer_spm.c: SentencePiece vocabularies. Spaces are written as U+2581, symbols are whole characters,
 * and what is no token is spelled with byte tokens <0x00> to <0xFF>. Two kinds: pairs are joined by the score
 * of the token they become (Kudo and Richardson, "SentencePiece", 2018, the BPE model), or by the rank of the
 * merge (Gemma 4). */
#include "base/memory.h"
#include "text/bpe_merges.h"
#include "text/tokenizer_kind.h"
#include "text/utf8.h"

#include <string.h>

static const char space_mark[3] = {'\xe2', '\x96', '\x81'}; /* U+2581 */

typedef struct spm {
    kv_bpe_merges merges;     /* empty where scores decide */
    int32_t byte_tokens[256]; /* -1 if there is none */
} spm;

/* ---- decoding ---- */

/* The byte of "<0xHH>", -1 for any other text. */
static int32_t byte_of(kv_gguf_string text) {
    static const char digits[] = "0123456789ABCDEF";
    if (text.size != 6 || memcmp(text.at, "<0x", 3) != 0 || text.at[5] != '>') return -1;
    const char *high = memchr(digits, text.at[3], 16), *low = memchr(digits, text.at[4], 16);
    return high && low ? (int32_t)((high - digits) * 16 + (low - digits)) : -1;
}

static size_t decode(kv_gguf_string text, kv_token_type type, char *out) {
    if (type == KV_TOKEN_BYTE) {
        *out = (char)byte_of(text);
        return 1;
    }
    if (type != KV_TOKEN_NORMAL && type != KV_TOKEN_UNUSED) {
        memcpy(out, text.at, text.size);
        return text.size;
    }
    size_t n = 0;
    for (size_t i = 0; i < text.size;) {
        bool mark = text.size - i >= 3 && memcmp(text.at + i, space_mark, 3) == 0;
        out[n++] = mark ? ' ' : text.at[i];
        i += mark ? 3 : 1;
    }
    return n;
}

/* ---- encoding ---- */

typedef struct score_rule {
    const kv_vocabulary *v;
    const char *text;
} score_rule;

/* Floats as integers that sort the other way round: the highest score first. */
static uint32_t descending(float score) {
    uint32_t bits;
    score += 0.0f; /* -0 is 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? bits : 0x7fffffffu - bits;
}

static bool join_by_score(const void *context, const kv_symbol *a, const kv_symbol *b, uint32_t *order,
                          int32_t *id) {
    const score_rule *rule = context;
    *id = kv_vocabulary_find_plain(rule->v, rule->text + a->start, (size_t)(a->size + b->size));
    if (*id < 0) return false;
    *order = descending(rule->v->scores[*id]);
    return true;
}

/* Text with its spaces marked; owned by the caller. */
static kv_status escape(const char *text, size_t size, bool prefix, char **out, size_t *n_out) {
    size_t n = prefix ? 3 : 0;
    for (size_t i = 0; i < size; i++) n += text[i] == ' ' ? 3 : 1;
    char *to = *out = kv_alloc(n, 1);
    if (!to) return KVANT_NO_MEMORY;
    *n_out = n;
    if (prefix) to = (char *)memcpy(to, space_mark, 3) + 3;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == ' ')
            to = (char *)memcpy(to, space_mark, 3) + 3;
        else
            *to++ = text[i];
    }
    return KVANT_OK;
}

static kv_status add_characters(kv_merger *m, const kv_vocabulary *v, const char *text, size_t size) {
    for (size_t i = 0; i < size;) {
        uint32_t code;
        int32_t n = kv_utf8_decode(text + i, size - i, &code);
        int32_t id = n ? kv_vocabulary_find_plain(v, text + i, (size_t)n) : -1;
        if (n == 0) n = 1;
        KV_TRY(kv_merge_add(m, n, id));
        i += (size_t)n;
    }
    return KVANT_OK;
}

static kv_status emit(const kv_tokenizer *t, const kv_symbol *s, const char *text, kv_tokens *out) {
    const spm *p = t->state;
    if (s->id >= 0) return kv_vec_push(out, s->id) ? KVANT_OK : KVANT_NO_MEMORY;
    for (int32_t i = 0; i < s->size; i++) {
        int32_t token = p->byte_tokens[(uint8_t)text[s->start + i]];
        if (token < 0) token = t->unknown;
        if (!kv_vec_push(out, token)) return KVANT_NO_MEMORY;
    }
    return KVANT_OK;
}

static kv_status encode(const kv_tokenizer *t, const char *text, size_t size, bool opens, kv_tokens *out) {
    kv_status status;
    kv_merger merger = {0};
    char *escaped = NULL;
    size_t n;
    const spm *p = t->state;
    KV_TRY_DONE(escape(text, size, opens && t->space_prefix, &escaped, &n));
    KV_TRY_DONE(add_characters(&merger, &t->vocab, escaped, n));
    if (p->merges.slots)
        KV_TRY_DONE(kv_merge_run(&merger, kv_bpe_merges_rule, &p->merges));
    else
        KV_TRY_DONE(kv_merge_run(&merger, join_by_score, &(score_rule){&t->vocab, escaped}));
    for (int32_t i = 0; i >= 0; i = merger.symbols.at[i].next)
        KV_TRY_DONE(emit(t, &merger.symbols.at[i], escaped, out));
done:
    kv_merger_clear(&merger);
    kv_free(escaped);
    return status;
}

/* ---- creating ---- */

static void destroy(void *state) {
    spm *p = state;
    if (!p) return;
    kv_bpe_merges_clear(&p->merges);
    kv_free(p);
}

static kv_status find_bytes(spm *p, const kv_tokenizer *t) {
    const kv_vocabulary *v = &t->vocab;
    memset(p->byte_tokens, 0xff, sizeof p->byte_tokens);
    for (int32_t i = 0; i < v->count; i++) {
        if (v->types[i] != KV_TOKEN_BYTE) continue;
        int32_t byte = byte_of(v->texts[i]);
        if (byte < 0)
            return kv_fail(KVANT_FORMAT, "tokenizer.ggml.tokens: byte token %d is not <0x00> to <0xFF>", i);
        if (p->byte_tokens[byte] < 0) p->byte_tokens[byte] = i;
    }
    for (int32_t byte = 0; byte < 256; byte++)
        if (p->byte_tokens[byte] < 0 && t->unknown < 0)
            return kv_fail(KVANT_FORMAT, "tokenizer.ggml.tokens: no byte token <0x%02X> and no unknown token",
                           byte);
    return KVANT_OK;
}

static kv_status create_common(kv_tokenizer *t, const kv_gguf *g, bool prefix) {
    t->space_prefix = prefix;
    KV_TRY(kv_gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", KV_GGUF_OPTIONAL, &t->space_prefix));
    t->state = kv_alloc(1, sizeof(spm));
    return t->state ? find_bytes(t->state, t) : KVANT_NO_MEMORY;
}

static kv_status create(kv_tokenizer *t, const kv_gguf *g) {
    if (!t->vocab.scores)
        return kv_fail(KVANT_FORMAT, "tokenizer.ggml.scores: missing, tokenizer model 'llama' needs it");
    return create_common(t, g, true);
}

static kv_status create_ranked(kv_tokenizer *t, const kv_gguf *g) {
    KV_TRY(create_common(t, g, false));
    return kv_bpe_merges_init(&((spm *)t->state)->merges, &t->vocab, g);
}

const kv_tokenizer_kind kv_tokenizer_spm = {
    .name = "spm",
    .model = "llama",
    .adds_bos = true,
    .bos = 1,
    .eos = 2,
    .unknown = 0,
    .create = create,
    .destroy = destroy,
    .encode = encode,
    .decode = decode,
};

const kv_tokenizer_kind kv_tokenizer_spm_ranked = {
    .name = "spm-ranked",
    .model = "gemma4",
    .adds_bos = true,
    .bos = -1,
    .eos = -1,
    .unknown = -1,
    .create = create_ranked,
    .destroy = destroy,
    .encode = encode,
    .decode = decode,
};
