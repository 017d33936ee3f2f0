/* tokenizer.c: what all kinds of tokenizer have in common: the vocabulary, the special ids, special tokens in
 * text, the bytes of each token. How ordinary text becomes tokens is the kind's affair. */
#include "text/tokenizer.h"

#include "base/memory.h"
#include "text/tokenizer_kind.h"

#include <stdio.h>
#include <string.h>

static const kv_tokenizer_kind *const kinds[] = {
#define KV_TOKENIZER(name) &kv_tokenizer_##name,
#include "text/tokenizers.inc"
#undef KV_TOKENIZER
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Tokens that end a message or a text, by their names in the vocabularies of known models. */
static const char *const end_texts[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<|return|>",
    "<|call|>",
    "<EOT>",
    "<eos>",
    "<|end_of_turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<｜end▁of▁sentence｜>",
};

static bool equals(kv_gguf_string s, const char *text) {
    return s.size == strlen(text) && memcmp(s.at, text, s.size) == 0;
}

/* ---- creating ---- */

static kv_status find_kind(const kv_tokenizer_kind **out, const kv_gguf *g) {
    kv_gguf_string model;
    KV_TRY(kv_gguf_get_string(g, "tokenizer.ggml.model", KV_GGUF_REQUIRED, &model));
    char list[200];
    size_t n = 0;
    for (size_t i = 0; i < N_KINDS; i++) {
        if (equals(model, kinds[i]->model)) {
            *out = kinds[i];
            return KVANT_OK;
        }
        if (n < sizeof list) n += (size_t)snprintf(list + n, sizeof list - n, " %s", kinds[i]->model);
    }
    return kv_fail(KVANT_UNSUPPORTED, "tokenizer.ggml.model: unknown '%.*s'; there are:%s",
                   model.size < 64 ? (int)model.size : 64, model.at, list);
}

/* A special id: the file's, else the kind's, else none. */
static kv_status read_id(const kv_tokenizer *t, const kv_gguf *g, const char *key, int32_t fallback,
                         int32_t *id) {
    int32_t value = fallback < t->vocab.count ? fallback : -1;
    KV_TRY(kv_gguf_get_i32(g, key, KV_GGUF_OPTIONAL, &value));
    if (value < -1 || value >= t->vocab.count)
        return kv_fail(KVANT_FORMAT, "%s: %d, the vocabulary has %d tokens", key, value, t->vocab.count);
    *id = value;
    return KVANT_OK;
}

static void add_end(kv_tokenizer *t, int32_t token) {
    enum { MAX_ENDS = sizeof t->ends / sizeof *t->ends };
    if (token >= 0 && t->n_ends < MAX_ENDS && !kv_tokenizer_is_end(t, token)) t->ends[t->n_ends++] = token;
}

static kv_status read_ids(kv_tokenizer *t, const kv_gguf *g) {
    int32_t end_of_turn = -1, end_of_message = -1;
    KV_TRY(read_id(t, g, "tokenizer.ggml.bos_token_id", t->kind->bos, &t->bos));
    KV_TRY(read_id(t, g, "tokenizer.ggml.eos_token_id", t->kind->eos, &t->eos));
    KV_TRY(read_id(t, g, "tokenizer.ggml.unknown_token_id", t->kind->unknown, &t->unknown));
    KV_TRY(read_id(t, g, "tokenizer.ggml.eot_token_id", -1, &end_of_turn));
    KV_TRY(read_id(t, g, "tokenizer.ggml.eom_token_id", -1, &end_of_message));
    add_end(t, t->eos);
    add_end(t, end_of_turn);
    add_end(t, end_of_message);
    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++)
        add_end(t, kv_tokenizer_find(t, end_texts[i], strlen(end_texts[i])));
    return KVANT_OK;
}

/* What the file says wins over what the kind or its pre-tokenizer is used to. */
static kv_status read_flags(kv_tokenizer *t, const kv_gguf *g) {
    kv_gguf_string architecture = {"", 0};
    KV_TRY(kv_gguf_get_bool(g, "tokenizer.ggml.add_bos_token", KV_GGUF_OPTIONAL, &t->adds_bos));
    KV_TRY(kv_gguf_get_bool(g, "tokenizer.ggml.add_eos_token", KV_GGUF_OPTIONAL, &t->adds_eos));
    KV_TRY(kv_gguf_get_string(g, "general.architecture", KV_GGUF_OPTIONAL, &architecture));
    t->adds_bos = t->adds_bos && t->bos >= 0;
    t->adds_eos = t->adds_eos && t->eos >= 0;
    /* Phi-3's tokenizer_config.json marks its control tokens "rstrip"; the file format has no key for that.
     */
    t->eats_space = equals(architecture, "phi3") && t->kind == &kv_tokenizer_spm;
    return KVANT_OK;
}

static kv_status decode_all(kv_tokenizer *t) {
    size_t bytes = 0;
    for (int32_t i = 0; i < t->vocab.count; i++)
        if (!kv_add_size(&bytes, bytes, t->vocab.texts[i].size))
            return kv_fail(KVANT_FORMAT, "vocabulary too big");
    t->pieces = kv_alloc((size_t)t->vocab.count, sizeof *t->pieces);
    t->piece_bytes = kv_alloc(bytes, 1);
    if (!t->pieces || !t->piece_bytes) return KVANT_NO_MEMORY;
    char *to = t->piece_bytes;
    for (int32_t i = 0; i < t->vocab.count; i++) {
        size_t n = t->kind->decode(t->vocab.texts[i], t->vocab.types[i], to);
        t->pieces[i] = (kv_gguf_string){to, n};
        to += n;
    }
    return KVANT_OK;
}

kv_status kv_tokenizer_create(kv_tokenizer **out, const kv_gguf *g) {
    kv_status status;
    const kv_tokenizer_kind *kind = NULL;
    KV_TRY(find_kind(&kind, g));
    kv_tokenizer *t = kv_alloc(1, sizeof *t);
    if (!t) return KVANT_NO_MEMORY;
    t->kind = kind;
    t->pre = "";
    t->adds_bos = kind->adds_bos;
    KV_TRY_DONE(kv_vocabulary_init(&t->vocab, g));
    KV_TRY_DONE(read_ids(t, g));
    KV_TRY_DONE(kind->create(t, g));
    KV_TRY_DONE(read_flags(t, g));
    KV_TRY_DONE(decode_all(t));
    *out = t;
    return KVANT_OK;
done:
    kv_tokenizer_destroy(t);
    return status;
}

void kv_tokenizer_destroy(kv_tokenizer *t) {
    if (!t) return;
    t->kind->destroy(t->state);
    kv_vocabulary_clear(&t->vocab);
    kv_free(t->pieces);
    kv_free(t->piece_bytes);
    kv_free(t);
}

/* ---- properties ---- */

int32_t kv_tokenizer_size(const kv_tokenizer *t) { return t->vocab.count; }

const char *kv_tokenizer_model(const kv_tokenizer *t) { return t->kind->name; }

const char *kv_tokenizer_pre(const kv_tokenizer *t) { return t->pre; }

int32_t kv_tokenizer_bos(const kv_tokenizer *t) { return t->bos; }

int32_t kv_tokenizer_eos(const kv_tokenizer *t) { return t->eos; }

bool kv_tokenizer_adds_bos(const kv_tokenizer *t) { return t->adds_bos; }

bool kv_tokenizer_adds_eos(const kv_tokenizer *t) { return t->adds_eos; }

bool kv_tokenizer_is_end(const kv_tokenizer *t, int32_t token) {
    for (int32_t i = 0; i < t->n_ends; i++)
        if (t->ends[i] == token) return true;
    return false;
}

kv_token_type kv_tokenizer_type(const kv_tokenizer *t, int32_t token) {
    return token >= 0 && token < t->vocab.count ? (kv_token_type)t->vocab.types[token] : KV_TOKEN_UNUSED;
}

int32_t kv_tokenizer_find(const kv_tokenizer *t, const char *text, size_t size) {
    return kv_vocabulary_find(&t->vocab, text, size);
}

bool kv_tokenizer_drops_leading_space(const kv_tokenizer *t) { return t->space_prefix; }

kv_status kv_tokenizer_piece(const kv_tokenizer *t, int32_t token, bool special, const char **bytes,
                             size_t *size) {
    if (token < 0 || token >= t->vocab.count)
        return kv_fail(KVANT_INVALID, "token %d: the vocabulary has %d tokens", token, t->vocab.count);
    uint8_t type = t->vocab.types[token];
    bool hidden = !special && (type == KV_TOKEN_CONTROL || type == KV_TOKEN_UNKNOWN);
    *bytes = t->pieces[token].at;
    *size = hidden ? 0 : t->pieces[token].size;
    return KVANT_OK;
}

/* ---- encoding ---- */

/* How many bytes at i lie before the next literal range: a control token may be that long. */
static size_t control_bytes(const kv_encode_options *options, size_t *range, size_t i, size_t size) {
    if (!options->parse_special) return 0;
    while (*range < options->n_literal && options->literal[*range].end <= i) ++*range;
    if (*range == options->n_literal) return size - i;
    size_t first = options->literal[*range].first;
    return first > i ? first - i : 0;
}

/* Phi-3: blanks behind a control token are dropped, but not behind these. */
static size_t skip_blanks(const kv_tokenizer *t, int32_t token, const char *text, size_t i, size_t size) {
    static const char *const keepers[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t k = 0; k < sizeof keepers / sizeof *keepers; k++)
        if (equals(t->vocab.texts[token], keepers[k])) return i;
    while (i < size && memchr(" \t\r\n\v\f", text[i], 6)) i++;
    return i;
}

static kv_status encode_text(const kv_tokenizer *t, const char *text, size_t size,
                             const kv_encode_options *options, kv_tokens *out) {
    bool opens = !options->continues;
    size_t start = 0, range = 0;
    for (size_t i = 0; i < size;) {
        size_t control = control_bytes(options, &range, i, size);
        int32_t token = kv_vocabulary_special_at(&t->vocab, text + i, size - i, control);
        if (token < 0) {
            i++;
            continue;
        }
        if (i > start) KV_TRY(t->kind->encode(t, text + start, i - start, opens, out));
        if (!kv_vec_push(out, token)) return KVANT_NO_MEMORY;
        i += t->vocab.texts[token].size;
        if (t->eats_space && options->parse_special) i = skip_blanks(t, token, text, i, size);
        start = i;
        opens = true;
    }
    return size > start ? t->kind->encode(t, text + start, size - start, opens, out) : KVANT_OK;
}

kv_status kv_tokenizer_encode(const kv_tokenizer *t, const char *text, size_t size, kv_encode_options options,
                              kv_tokens *out) {
    kv_status status = KVANT_NO_MEMORY;
    size_t count = out->count;
    if (size > KV_TEXT_BYTES_MAX)
        return kv_fail(KVANT_INVALID, "text of %zu bytes: at most %d can be tokenized at once", size,
                       KV_TEXT_BYTES_MAX);
    if (options.add_special && t->adds_bos && !options.continues && !kv_vec_push(out, t->bos)) goto done;
    KV_TRY_DONE(encode_text(t, text, size, &options, out));
    if (options.add_special && t->adds_eos && !kv_vec_push(out, t->eos)) status = KVANT_NO_MEMORY;
done:
    if (status) out->count = count;
    return status;
}
