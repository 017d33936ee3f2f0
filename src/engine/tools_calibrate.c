/* tools_calibrate.c: kvant_calibrate of kvant_tools.h: means first, then how many pairs of them. */
#include "engine/calibrate.h"

#include <string.h>

enum { LEAST_TOKENS = 32 };

/* The means are one reading of the text, the trials one each and one of floats. */
static const double MEANS_SHARE = 1.0 / (KVANT_CALIBRATE_TRIALS + 2);

typedef struct progress {
    const kvant_calibrate_options *options;
    double from, to;
} progress;

static bool report(void *user, double fraction) {
    const progress *p = user;
    if (!p->options->progress) return true;
    return p->options->progress(p->options->user, p->from + (p->to - p->from) * fraction);
}

static kv_status take_tokens(kv_tokens *out, const kvant_model *model) {
    kv_encode_options plain = {.add_special = false};
    KV_TRY(kv_tokenizer_encode(model->tokenizer, kv_centre_text, strlen(kv_centre_text), plain, out));
    size_t n_train = (size_t)model->model.hparams.n_ctx_train, most = KV_CALIBRATION_TOKENS;
    if (n_train < most) most = n_train;
    if (out->count > most) out->count = most;
    if (out->count >= LEAST_TOKENS) return KVANT_OK;
    return kv_fail(KVANT_UNSUPPORTED, "the model reads %zu tokens at once, at least %d are needed",
                   out->count, LEAST_TOKENS);
}

static int32_t most_pairs(const kv_hparams *h) {
    int32_t n_rot = 0;
    for (int32_t i = 0; i < h->n_layers; i++) {
        const kv_rope_spec *rope = &h->rope[h->layers[i].rope];
        if (rope->n_rot > n_rot) n_rot = rope->n_rot;
    }
    return n_rot / 2;
}

/* None, all, and parts of them; of a few pairs some parts are the same. */
static void plan_trials(kvant_calibrate_result *r, int32_t most) {
    static const int32_t eighths[KVANT_CALIBRATE_TRIALS] = {0, 1, 2, 4, 6, 8};
    for (int32_t i = 0; i < KVANT_CALIBRATE_TRIALS; i++) {
        int32_t n = most * eighths[i] / 8;
        if (r->n_trials && r->trials[r->n_trials - 1].n_pairs == n) continue;
        r->trials[r->n_trials++].n_pairs = n;
    }
}

/* The fewest whose divergence is close to the least. */
static int32_t choose(const kvant_calibrate_result *r) {
    static const double CLOSE = 1.05;
    double best = r->trials[0].kl;
    int32_t i = 0;
    for (int32_t t = 1; t < r->n_trials; t++)
        if (r->trials[t].kl < best) best = r->trials[t].kl;
    while (r->trials[i].kl > CLOSE * best) i++;
    return r->trials[i].n_pairs;
}

static kv_status calibrate(kv_centre_set *set, kv_calibration *c, const kvant_calibrate_options *o,
                           kvant_calibrate_result *r) {
    progress means = {o, 0, MEANS_SHARE}, trials = {o, MEANS_SHARE, 1};
    c->progress = report;
    c->user = &means;
    KV_TRY(kv_calibrate_means(set, c));
    c->user = &trials;
    KV_TRY(kv_calibrate_pairs(r->trials, r->n_trials, set, c));
    set->n_pairs = r->n_pairs = choose(r);
    return KVANT_OK;
}

kvant_status kvant_calibrate(kvant_model *model, const char *path, const kvant_calibrate_options *options,
                             kvant_calibrate_result *result) {
    kvant_calibrate_options o = KVANT_CALIBRATE_OPTIONS_INIT;
    kvant_calibrate_result r = {.n_tokens = 0};
    if (!model || !path) return kv_fail(KVANT_INVALID, "kvant_calibrate: model and path must not be NULL");
    KV_TRY(kv_take_struct(&o, sizeof o, options, "kvant_calibrate_options"));
    if (model->vocab_only)
        return kv_fail(KVANT_INVALID, "the model was opened with vocab_only: it cannot be run");
    kv_centre_set set = {0};
    kv_tokens tokens = {0};
    plan_trials(&r, most_pairs(&model->model.hparams));
    kv_status status = take_tokens(&tokens, model);
    kv_calibration c = {.model = model, .tokens = tokens.at, .n_tokens = (int32_t)tokens.count};
    if (!status) status = calibrate(&set, &c, &o, &r);
    if (!status) status = kv_centre_set_write(&set, path, model->fingerprint);
    r.n_tokens = c.n_tokens;
    if (!status && result) kv_give_struct(result, &r, sizeof r);
    kv_vec_clear(&tokens);
    kv_centre_set_clear(&set);
    return status;
}
