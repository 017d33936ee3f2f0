/* small_session.h: what tests of sessions share: the small models of tests/data, sessions that compute in
 * f32, evaluation that must succeed, logits side by side. Public API only. */
#pragma once

#include "kvant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline void check_ok(kvant_status status, const char *file, int line) {
    if (status == KVANT_OK) return;
    print_error("%s:%d: %s: %s\n", file, line, kvant_status_text(status), kvant_last_error());
    fail();
}
#define assert_ok(call)             check_ok((call), __FILE__, __LINE__)
#define assert_status(call, status) assert_int_equal((call), (status))

static inline kvant_model *open_small_model(const char *name) {
    char path[512];
    kvant_model *model = NULL;
    kvant_model_options options = KVANT_MODEL_OPTIONS_INIT;
    options.n_threads = 1;
    snprintf(path, sizeof path, KVANT_SOURCE_DIR "/tests/data/%s.gguf", name);
    assert_ok(kvant_model_open(&model, path, &options));
    return model;
}

/* K and V of type `kv`, everything else f32. */
static inline kvant_session *open_session(kvant_model *model, const char *kv, int32_t n_ctx,
                                          int32_t n_sequences) {
    kvant_session *session = NULL;
    kvant_session_options options = KVANT_SESSION_OPTIONS_INIT;
    options.n_ctx = n_ctx;
    options.n_sequences = n_sequences;
    options.type_k = options.type_v = kv;
    options.act = KVANT_ACT_F32;
    assert_ok(kvant_session_create(&session, model, &options));
    return session;
}

static inline int32_t n_vocab_of(const kvant_model *model) {
    kvant_model_info info = KVANT_MODEL_INFO_INIT;
    kvant_model_get_info(model, &info);
    return info.n_vocab;
}

/* The i-th token of a fixed text: any of the 253 pieces of the small models' vocabulary. */
static inline kvant_token some_token(int32_t i) {
    return 259 + (kvant_token)(((uint32_t)i * 2654435761u >> 8) % 253);
}

static inline kvant_status try_eval(kvant_session *session, int32_t seq, const kvant_token *tokens,
                                    int32_t n) {
    return kvant_eval(session, &(kvant_chunk){seq, tokens, n, KVANT_LOGITS_LAST}, 1);
}

static inline void eval(kvant_session *session, int32_t seq, const kvant_token *tokens, int32_t n) {
    assert_ok(try_eval(session, seq, tokens, n));
}

/* Tokens [first, first + n) of the fixed text. */
static inline void eval_some(kvant_session *session, int32_t seq, int32_t first, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        kvant_token token = some_token(first + i);
        eval(session, seq, &token, 1);
    }
}

/* Owned by the caller (free). */
static inline float *copy_logits(const kvant_session *session, int32_t n_vocab) {
    float *copy = malloc((size_t)n_vocab * sizeof *copy);
    assert_non_null(copy);
    assert_non_null(kvant_logits(session, 0));
    memcpy(copy, kvant_logits(session, 0), (size_t)n_vocab * sizeof *copy);
    return copy;
}

/* The largest difference of two logits; infinite where one is not finite. */
static inline double logit_distance(const float *a, const float *b, int32_t n_vocab) {
    double most = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= most)) most = isfinite(d) ? d : INFINITY;
    }
    return most;
}

static inline double session_distance(const kvant_session *a, const kvant_session *b, int32_t n_vocab) {
    assert_non_null(kvant_logits(a, 0));
    assert_non_null(kvant_logits(b, 0));
    return logit_distance(kvant_logits(a, 0), kvant_logits(b, 0), n_vocab);
}
