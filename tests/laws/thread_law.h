/* thread_law.h: results are the same bits for any number of threads, shown on a model. */
#pragma once

#include "session_fixture.h"

enum { LAW_PREFILL = 70, LAW_DECODE = 20 };

/* Logits of a prefill and of some steps behind it. */
static inline float *law_logits(kvant_model *m, const char *kv, kvant_act act) {
    size_t n_vocab = (size_t)fixture_n_vocab(m);
    float *all = malloc((1 + LAW_DECODE) * n_vocab * sizeof *all);
    assert_non_null(all);
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.n_ctx = 128;
    o.type_k = o.type_v = kv;
    o.act = act;
    kvant_session *s = fixture_session(m, o);
    fixture_check(fixture_eval(s, m, 0, 0, LAW_PREFILL, KVANT_LOGITS_LAST));
    memcpy(all, kvant_logits(s, 0), n_vocab * sizeof *all);
    for (int32_t i = 0; i < LAW_DECODE; i++) {
        if (i == LAW_DECODE / 2) fixture_check(kvant_seq_drop(s, 0, 10, 20)); /* then with turned queries */
        fixture_check(fixture_eval(s, m, 0, LAW_PREFILL + i, 1, KVANT_LOGITS_LAST));
        memcpy(all + (size_t)(1 + i) * n_vocab, kvant_logits(s, 0), n_vocab * sizeof *all);
    }
    kvant_session_close(s);
    return all;
}

static const struct {
    const char *kv;
    kvant_act act;
} law_modes[] = {
    {"f16", KVANT_ACT_FAST}, {"q8_0", KVANT_ACT_FAST}, {"f16", KVANT_ACT_F32}, {"q8_0", KVANT_ACT_F32}};
enum { LAW_MODES = sizeof law_modes / sizeof *law_modes };

static inline void law_same_bits(const char *path, const int32_t *counts, int32_t n_counts, int n_modes) {
    float *want[LAW_MODES] = {0};
    for (int32_t t = 0; t < n_counts; t++) {
        kvant_model *m = fixture_open(path, counts[t]);
        size_t bytes = (1 + LAW_DECODE) * (size_t)fixture_n_vocab(m) * sizeof(float);
        for (int i = 0; i < n_modes; i++) {
            float *got = law_logits(m, law_modes[i].kv, law_modes[i].act);
            if (t == 0) {
                want[i] = got;
                continue;
            }
            if (memcmp(want[i], got, bytes))
                fail_msg("%s, KV %s, act %d: %d threads and %d differ", path, law_modes[i].kv,
                         law_modes[i].act, counts[t], counts[0]);
            free(got);
        }
        kvant_model_close(m);
    }
    for (int i = 0; i < n_modes; i++) free(want[i]);
}
