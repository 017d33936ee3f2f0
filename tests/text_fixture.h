/* text_fixture.h: what the tests of src/text share: encode and decode that must succeed, and small
 * vocabularies built as GGUF bytes in memory. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/memory.h"
#include "gguf/gguf.h"
#include "text/tokenizer.h"
#include "vocab_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static inline void check_ok(kv_status status, const char *file, int line) {
    if (status == KVANT_OK) return;
    print_error("%s:%d: %s: %s\n", file, line, kv_status_text(status), kv_last_error());
    fail();
}
#define assert_ok(call) check_ok((call), __FILE__, __LINE__)

static inline kv_tokens encode(const kv_tokenizer *t, const char *text, size_t size,
                               kv_encode_options options) {
    kv_tokens tokens = {0};
    assert_ok(kv_tokenizer_encode(t, text, size, options, &tokens));
    return tokens;
}

/* The text of the tokens, control tokens not shown; owned by the caller (kv_free). */
static inline char *decode(const kv_tokenizer *t, const kv_tokens *tokens, size_t *size) {
    KV_VEC(char) text = {0};
    for (size_t i = 0; i < tokens->count; i++) {
        const char *bytes;
        size_t n;
        assert_ok(kv_tokenizer_piece(t, tokens->at[i], false, &bytes, &n));
        assert_true(kv_vec_reserve(&text, text.count + n + 1));
        memcpy(text.at + text.count, bytes, n);
        text.count += n;
    }
    assert_true(kv_vec_reserve(&text, text.count + 1));
    if (kv_tokenizer_drops_leading_space(t) && text.count && text.at[0] == ' ')
        memmove(text.at, text.at + 1, --text.count);
    text.at[text.count] = 0;
    *size = text.count;
    return text.at;
}

/* A vocabulary with all that it stands on. */
typedef struct vocabulary {
    vocab_bytes bytes; /* of one built in memory */
    kv_gguf *gguf;
    kv_tokenizer *tokenizer;
} vocabulary;

static inline void close_vocabulary(vocabulary *v) {
    kv_tokenizer_destroy(v->tokenizer);
    kv_gguf_close(v->gguf);
    kv_vec_clear(&v->bytes);
}

static inline vocabulary build_vocabulary(const vocab_spec *spec) {
    vocabulary v = {.bytes = vocab_write(spec)};
    assert_ok(kv_gguf_open_memory(&v.gguf, v.bytes.at, v.bytes.count));
    assert_ok(kv_tokenizer_create(&v.tokenizer, v.gguf));
    return v;
}

/* From a file, or the test is skipped, visibly. */
static inline vocabulary open_vocabulary(const char *path) {
    vocabulary v = {0};
    if (access(path, R_OK) != 0) {
        print_message("skipped: %s is not there\n", path);
        skip();
    }
    assert_ok(kv_gguf_open(&v.gguf, path));
    assert_ok(kv_tokenizer_create(&v.tokenizer, v.gguf));
    return v;
}

#define ORACLES KVANT_SOURCE_DIR "/../shared/oracles/tokenizers/"
static inline vocabulary open_oracle(const char *name) {
    char path[512];
    snprintf(path, sizeof path, ORACLES "%s.gguf", name);
    return open_vocabulary(path);
}
