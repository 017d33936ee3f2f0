/* vocab_builder.h: small vocabularies as GGUF bytes in memory, for tests and fuzz targets. A vocabulary is a
 * list of fields that a test may change before it is written. */
#pragma once

#include "base/memory.h"
#include "gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct vocab_field {
    const char *key;
    kv_gguf_type type, element;
    uint64_t count; /* entries of an array; past those given, fillers are written */
    uint32_t number;
    const char *string;
    const kv_gguf_string *strings;
    const int32_t *ints;
    const float *floats;
    uint64_t n_given;
} vocab_field;

enum { VOCAB_MAX_FIELDS = 16, VOCAB_MAX_TOKENS = 512 };

typedef struct vocab_spec {
    vocab_field fields[VOCAB_MAX_FIELDS];
    int32_t n_fields, n_tokens, n_merges;
    kv_gguf_string tokens[VOCAB_MAX_TOKENS], merges[64];
    int32_t types[VOCAB_MAX_TOKENS];
    float scores[VOCAB_MAX_TOKENS];
    char names[VOCAB_MAX_TOKENS][8];
} vocab_spec;

typedef struct vocab_bytes {
    uint8_t *at;
    size_t count, capacity;
} vocab_bytes;

/* ---- writing ---- */

static inline void vocab_put(vocab_bytes *b, const void *data, size_t n) {
    if (!kv_vec_reserve(b, b->count + n)) abort();
    if (n) memcpy(b->at + b->count, data, n);
    b->count += n;
}

static inline void vocab_put_u32(vocab_bytes *b, uint32_t x) { vocab_put(b, &x, sizeof x); }

static inline void vocab_put_string(vocab_bytes *b, const char *s, uint64_t n) {
    vocab_put(b, &n, sizeof n);
    vocab_put(b, s, n);
}

static inline void vocab_put_entry(vocab_bytes *b, const vocab_field *f, uint64_t i) {
    bool given = i < f->n_given;
    if (f->element == KV_GGUF_STRING && given)
        vocab_put_string(b, f->strings[i].at, f->strings[i].size);
    else if (f->element == KV_GGUF_STRING)
        vocab_put_string(b, "filler", 6);
    else if (f->element == KV_GGUF_F32)
        vocab_put(b, given ? &f->floats[i] : &(float){0}, 4);
    else
        vocab_put(b, given ? &f->ints[i] : &(int32_t){1}, 4);
}

static inline void vocab_put_field(vocab_bytes *b, const vocab_field *f) {
    vocab_put_string(b, f->key, strlen(f->key));
    vocab_put_u32(b, f->type);
    if (f->type == KV_GGUF_BOOL) vocab_put(b, &(uint8_t){(uint8_t)f->number}, 1);
    if (f->type == KV_GGUF_U32) vocab_put_u32(b, f->number);
    if (f->type == KV_GGUF_STRING) vocab_put_string(b, f->string, strlen(f->string));
    if (f->type != KV_GGUF_ARRAY) return;
    vocab_put_u32(b, f->element);
    vocab_put(b, &f->count, sizeof f->count);
    for (uint64_t i = 0; i < f->count; i++) vocab_put_entry(b, f, i);
}

/* The file; free it with kv_vec_clear. */
static inline vocab_bytes vocab_write(const vocab_spec *v) {
    vocab_bytes b = {0};
    uint64_t n_tensors = 0, n_values = (uint64_t)v->n_fields;
    vocab_put(&b, "GGUF\3\0\0\0", 8);
    vocab_put(&b, &n_tensors, sizeof n_tensors);
    vocab_put(&b, &n_values, sizeof n_values);
    for (int32_t i = 0; i < v->n_fields; i++) vocab_put_field(&b, &v->fields[i]);
    return b;
}

/* ---- fields and tokens ---- */

static inline vocab_field *vocab_find(vocab_spec *v, const char *key) {
    for (int32_t i = 0; i < v->n_fields; i++)
        if (strcmp(v->fields[i].key, key) == 0) return &v->fields[i];
    vocab_field *f = &v->fields[v->n_fields++];
    *f = (vocab_field){.key = key};
    return f;
}

static inline void vocab_set_string(vocab_spec *v, const char *key, const char *value) {
    vocab_field *f = vocab_find(v, key);
    f->type = KV_GGUF_STRING;
    f->string = value;
}

static inline void vocab_set_number(vocab_spec *v, const char *key, kv_gguf_type type, uint32_t value) {
    vocab_field *f = vocab_find(v, key);
    f->type = type;
    f->number = value;
}

static inline vocab_field *vocab_set_array(vocab_spec *v, const char *key, kv_gguf_type element, int32_t n) {
    vocab_field *f = vocab_find(v, key);
    f->type = KV_GGUF_ARRAY;
    f->element = element;
    f->count = f->n_given = (uint64_t)n;
    return f;
}

static inline int32_t vocab_add(vocab_spec *v, const char *text, int32_t type, float score) {
    int32_t i = v->n_tokens++;
    v->tokens[i] = (kv_gguf_string){text, strlen(text)};
    v->types[i] = type;
    v->scores[i] = score;
    return i;
}

/* Arrays as far as tokens and merges have been added. */
static inline void vocab_finish(vocab_spec *v) {
    vocab_set_array(v, "tokenizer.ggml.tokens", KV_GGUF_STRING, v->n_tokens)->strings = v->tokens;
    vocab_set_array(v, "tokenizer.ggml.token_type", KV_GGUF_I32, v->n_tokens)->ints = v->types;
    vocab_set_array(v, "tokenizer.ggml.scores", KV_GGUF_F32, v->n_tokens)->floats = v->scores;
    vocab_set_array(v, "tokenizer.ggml.merges", KV_GGUF_STRING, v->n_merges)->strings = v->merges;
}

/* Control tokens of every chat format; types as in kv_token_type. */
static inline void vocab_add_controls(vocab_spec *v) {
    static const char *const controls[] = {"<|im_start|>",
                                           "<|im_end|>",
                                           "<|start_header_id|>",
                                           "<|end_header_id|>",
                                           "<|eot_id|>",
                                           "<start_of_turn>",
                                           "<end_of_turn>",
                                           "<|user|>",
                                           "<|assistant|>",
                                           "<|system|>",
                                           "<|end|>",
                                           "[INST]",
                                           "[/INST]"};
    for (size_t i = 0; i < sizeof controls / sizeof *controls; i++) vocab_add(v, controls[i], 3, 0);
    vocab_add(v, "<tool>", 4, 0);
}

/* ---- the vocabularies ---- */

/* Byte-level BPE: the 256 letters of GPT-2's alphabet, some merges, control tokens. Byte-complete. */
static inline void vocab_bpe(vocab_spec *v) {
    static const char *const merges[] = {"h e",
                                         "l l",
                                         "he ll",
                                         "hell o",
                                         "\xc4\xa0 w",
                                         "o r",
                                         "\xc4\xa0w or",
                                         "\xc4\xa0wor l",
                                         "\xc4\xa0worl d",
                                         "\xc4\xa0 \xc4\xa0",
                                         "a a",
                                         "aa aa",
                                         "\xc4\x8a \xc4\x8a",
                                         "i n",
                                         "in g",
                                         "e r",
                                         "\xc3\xb0 \xc5\x81"};
    static const char *const results[] = {"he",
                                          "ll",
                                          "hell",
                                          "hello",
                                          "\xc4\xa0w",
                                          "or",
                                          "\xc4\xa0wor",
                                          "\xc4\xa0worl",
                                          "\xc4\xa0world",
                                          "\xc4\xa0\xc4\xa0",
                                          "aa",
                                          "aaaa",
                                          "\xc4\x8a\xc4\x8a",
                                          "in",
                                          "ing",
                                          "er",
                                          "\xc3\xb0\xc5\x81"};
    *v = (vocab_spec){0};
    for (int byte = 0, next = 256; byte < 256; byte++) {
        bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        int code = printable ? byte : next++;
        snprintf(v->names[byte], sizeof *v->names, code < 128 ? "%c" : "%c%c",
                 code < 128 ? code : 0xc0 | code >> 6, 0x80 | (code & 0x3f));
        vocab_add(v, v->names[byte], 1, 0);
    }
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        v->merges[v->n_merges++] = (kv_gguf_string){merges[i], strlen(merges[i])};
        vocab_add(v, results[i], 1, 0);
    }
    vocab_add_controls(v);
    vocab_set_string(v, "tokenizer.ggml.model", "gpt2");
    vocab_set_string(v, "tokenizer.ggml.pre", "smollm");
    vocab_set_number(v, "tokenizer.ggml.bos_token_id", KV_GGUF_U32, (uint32_t)vocab_add(v, "<s>", 3, 0));
    vocab_set_number(v, "tokenizer.ggml.eos_token_id", KV_GGUF_U32, (uint32_t)vocab_add(v, "</s>", 3, 0));
    vocab_finish(v);
}

/* SentencePiece with byte tokens, some letters and words. Byte-complete, except that U+2581 reads as a space.
 */
static inline void vocab_spm(vocab_spec *v) {
    static const char *const words[] = {"\xe2\x96\x81",
                                        "a",
                                        "b",
                                        "e",
                                        "h",
                                        "l",
                                        "o",
                                        "r",
                                        "w",
                                        "d",
                                        "\xc3\xa9",
                                        "he",
                                        "ll",
                                        "hell",
                                        "hello",
                                        "\xe2\x96\x81hello",
                                        "wo",
                                        "\xe2\x96\x81wo",
                                        "rl",
                                        "rld",
                                        "\xe2\x96\x81world",
                                        "\xe2\x96\x81\xe2\x96\x81",
                                        "aa",
                                        "aaaa"};
    *v = (vocab_spec){0};
    vocab_add(v, "<unk>", 2, 0);
    vocab_add(v, "<s>", 3, 0);
    vocab_add(v, "</s>", 3, 0);
    for (int byte = 0; byte < 256; byte++) {
        snprintf(v->names[byte], sizeof *v->names, "<0x%02X>", byte);
        vocab_add(v, v->names[byte], 6, 0);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        vocab_add(v, words[i], 1, (float)strlen(words[i]) - 20);
    vocab_add_controls(v);
    vocab_set_string(v, "tokenizer.ggml.model", "llama");
    vocab_set_number(v, "tokenizer.ggml.bos_token_id", KV_GGUF_U32, 1);
    vocab_set_number(v, "tokenizer.ggml.eos_token_id", KV_GGUF_U32, 2);
    vocab_set_number(v, "tokenizer.ggml.unknown_token_id", KV_GGUF_U32, 0);
    vocab_set_number(v, "tokenizer.ggml.add_bos_token", KV_GGUF_BOOL, 1);
    vocab_finish(v);
}

/* The same, joined by merges instead of scores. */
static inline void vocab_spm_ranked(vocab_spec *v) {
    static const char *const merges[] = {"h e", "l l",  "he ll", "hell o", "w o",
                                         "r l", "rl d", "a a",   "aa aa"};
    vocab_spm(v);
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        v->merges[v->n_merges++] = (kv_gguf_string){merges[i], strlen(merges[i])};
    vocab_set_string(v, "tokenizer.ggml.model", "gemma4");
    vocab_finish(v);
}

enum { N_VOCAB_BUILDERS = 3 };
static void (*const vocab_builders[N_VOCAB_BUILDERS])(vocab_spec *) = {vocab_bpe, vocab_spm,
                                                                       vocab_spm_ranked};
