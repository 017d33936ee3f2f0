/* session_fixture.h: models and sessions through the public API, for laws that hold for whole models. What
 * fails without being expected to ends the test with its message. */
#pragma once

#include "kvant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FIXTURE_DATA    KVANT_SOURCE_DIR "/tests/data/"
#define FIXTURE_SMOLLM2 KVANT_SOURCE_DIR "/.cache/models/smollm2-135m-q4_1.gguf"

static inline void fixture_check(kvant_status status) {
    if (status) fail_msg("%s: %s", kvant_status_text(status), kvant_last_error());
}

static inline kvant_model *fixture_open(const char *path, int32_t n_threads) {
    kvant_model_options o = KVANT_MODEL_OPTIONS_INIT;
    o.n_threads = n_threads;
    kvant_model *m = NULL;
    fixture_check(kvant_model_open(&m, path, &o));
    return m;
}

static inline kvant_session *fixture_session(kvant_model *m, kvant_session_options o) {
    kvant_session *s = NULL;
    fixture_check(kvant_session_create(&s, m, &o));
    return s;
}

static inline int32_t fixture_n_vocab(const kvant_model *m) {
    kvant_model_info info = KVANT_MODEL_INFO_INIT;
    kvant_model_get_info(m, &info);
    return info.n_vocab;
}

/* Token i of a text without meaning that is the same in every run. */
static inline kvant_token fixture_token(const kvant_model *m, int32_t i) {
    return (kvant_token)((uint32_t)(i + 1) * 2654435761u % (uint32_t)fixture_n_vocab(m));
}

/* Appends tokens [from, from + n) of that text to a sequence. */
static inline kvant_status fixture_eval(kvant_session *s, const kvant_model *m, int32_t seq, int32_t from,
                                        int32_t n, kvant_logits_mode logits) {
    kvant_token *tokens = malloc((size_t)n * sizeof *tokens);
    assert_non_null(tokens);
    for (int32_t i = 0; i < n; i++) tokens[i] = fixture_token(m, from + i);
    kvant_status status = kvant_eval(s, &(kvant_chunk){seq, tokens, n, logits}, 1);
    free(tokens);
    return status;
}
