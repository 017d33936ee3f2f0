/* calibrate_pairs.c: sessions that differ in the number of centred pairs read a text side by side with one
 * whose cache is all floats; the second half is scored. Side by side, because the logits of one batch are all
 * that has to be kept. */
#include "engine/calibrate.h"

#include <math.h>

enum { BATCH = 64, SCORED_BATCH = 16 /* of logits: a vocabulary is a MiB a row */ };

typedef struct race {
    const kv_calibration *c;
    kvant_session *base, *runners[KVANT_CALIBRATE_TRIALS];
    kvant_calibrate_trial *trials;
    int32_t n_trials;
} race;

static kv_status open_session(kvant_session **out, const race *r, const char *type_k,
                              const kv_centre_set *set) {
    kvant_session_options s = KVANT_SESSION_OPTIONS_INIT;
    s.n_ctx = r->c->n_tokens;
    s.n_batch = BATCH;
    s.type_k = type_k;
    s.type_v = KV_FLOAT->name;
    s.act = KVANT_ACT_F32;
    return kv_session_create(out, r->c->model, &s, set);
}

static kv_status open_sessions(race *r, const kv_centre_set *set) {
    kv_centre_set trial = *set;
    trial.n_pairs = 0;
    KV_TRY(open_session(&r->base, r, KV_FLOAT->name, &trial));
    for (int32_t i = 0; i < r->n_trials; i++) {
        trial.n_pairs = r->trials[i].n_pairs;
        KV_TRY(open_session(&r->runners[i], r, "q4_0", &trial));
    }
    return KVANT_OK;
}

static double log_sum_exp(const float *logits, int32_t n) {
    double most = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++) most = fmax(most, (double)logits[i]);
    for (int32_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return most + log(sum);
}

/* KL(base || other) of row i of both sessions' logits. */
static double divergence(const kvant_session *base, const kvant_session *other, int32_t i) {
    int32_t n = kv_session_n_vocab(base);
    const float *p = kvant_logits(base, i), *q = kvant_logits(other, i);
    double norm_p = log_sum_exp(p, n), norm_q = log_sum_exp(q, n), kl = 0;
    for (int32_t t = 0; t < n; t++) {
        double log_p = (double)p[t] - norm_p;
        kl += exp(log_p) * (log_p - ((double)q[t] - norm_q));
    }
    return kl;
}

static kv_status run_batch(race *r, const kvant_chunk *chunk) {
    KV_TRY(kvant_eval(r->base, chunk, 1));
    for (int32_t t = 0; t < r->n_trials; t++) {
        KV_TRY(kvant_eval(r->runners[t], chunk, 1));
        for (int32_t i = 0; i < kvant_n_logits(r->base); i++)
            r->trials[t].kl += divergence(r->base, r->runners[t], i);
    }
    return KVANT_OK;
}

static kv_status run(race *r) {
    const kv_calibration *c = r->c;
    for (int32_t at = 0, scored = c->n_tokens / 2, n; at < c->n_tokens; at += n) {
        int32_t end = at < scored ? scored : c->n_tokens, most = at < scored ? BATCH : SCORED_BATCH;
        n = end - at < most ? end - at : most;
        kvant_chunk chunk = {.tokens = c->tokens + at,
                             .n_tokens = n,
                             .logits = at < scored ? KVANT_LOGITS_NONE : KVANT_LOGITS_ALL};
        KV_TRY(run_batch(r, &chunk));
        if (c->progress && !c->progress(c->user, (double)(at + n) / c->n_tokens))
            return kv_fail(KVANT_CANCELLED, "cancelled");
    }
    return KVANT_OK;
}

static kv_status finish(race *r) {
    for (int32_t t = 0; t < r->n_trials; t++) {
        r->trials[t].kl /= r->c->n_tokens - r->c->n_tokens / 2;
        if (!isfinite(r->trials[t].kl))
            return kv_fail(KVANT_FAILED, "the logits with %d centred pairs are not finite",
                           r->trials[t].n_pairs);
    }
    return KVANT_OK;
}

kv_status kv_calibrate_pairs(kvant_calibrate_trial *trials, int32_t n_trials, const kv_centre_set *set,
                             const kv_calibration *c) {
    race r = {.c = c, .trials = trials, .n_trials = n_trials};
    kv_status status = open_sessions(&r, set);
    if (!status) status = run(&r);
    if (!status) status = finish(&r);
    kvant_session_close(r.base);
    for (int32_t i = 0; i < n_trials; i++) kvant_session_close(r.runners[i]);
    return status;
}
