/* sampler.c: the chain from logits to a token. Candidates are cut while they are ordered by logit
 * (descending, then by id), so what is left is always a prefix of that order; weights and sums are f64. All
 * memory is there from the start: 20 bytes for each token of the vocabulary. */
#include "text/sampler.h"

#include "base/memory.h"
#include "base/random.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

struct kv_sampler {
    kvant_sampler_options options; /* bias: owned */
    int32_t n_vocab;
    kv_random random;
    int32_t *history; /* ring of the last repeat_last_n tokens */
    int32_t n_history, next;
    int32_t *counts; /* per token: how often it is in the history */
    candidate *candidates;
    double *weights;
    int32_t n_candidates;
};

/* ---- options ---- */

/* What bias and penalties may change a logit by: far more than any is apart, far less than overflows. */
static const float MAX_CHANGE = 1e6f;

static kv_status check_range(const char *name, float value, float low, float high) {
    if (value >= low && value <= high) return KVANT_OK; /* NaN is neither */
    return kv_fail(KVANT_INVALID, "sampler: %s is %g, expected %g to %g", name, (double)value, (double)low,
                   (double)high);
}

static kv_status check_count(const char *name, int32_t value) {
    return value >= 0 ? KVANT_OK
                      : kv_fail(KVANT_INVALID, "sampler: %s is %d, expected 0 or more", name, value);
}

static kv_status check_bias(const kvant_sampler_options *o, int32_t n_vocab) {
    KV_TRY(check_count("n_bias", o->n_bias));
    if (o->n_bias && !o->bias)
        return kv_fail(KVANT_INVALID, "sampler: n_bias is %d and bias is NULL", o->n_bias);
    for (int32_t i = 0; i < o->n_bias; i++) {
        if (o->bias[i].token < 0 || o->bias[i].token >= n_vocab)
            return kv_fail(KVANT_INVALID, "sampler: bias for token %d, the vocabulary has %d",
                           o->bias[i].token, n_vocab);
        KV_TRY(check_range("a bias", o->bias[i].bias, -INFINITY, MAX_CHANGE));
    }
    return KVANT_OK;
}

static kv_status check_options(const kvant_sampler_options *o, int32_t n_vocab) {
    KV_TRY(check_range("temperature", o->temperature, -FLT_MAX, FLT_MAX));
    KV_TRY(check_count("top_k", o->top_k));
    KV_TRY(check_range("top_p", o->top_p, 0, 1));
    KV_TRY(check_range("min_p", o->min_p, 0, 1));
    KV_TRY(check_range("repeat_penalty", o->repeat_penalty, 1 / MAX_CHANGE, MAX_CHANGE));
    KV_TRY(check_range("presence_penalty", o->presence_penalty, -MAX_CHANGE, MAX_CHANGE));
    KV_TRY(check_range("frequency_penalty", o->frequency_penalty, -MAX_CHANGE, MAX_CHANGE));
    KV_TRY(check_count("repeat_last_n", o->repeat_last_n));
    return check_bias(o, n_vocab);
}

kv_status kv_sampler_create(kv_sampler **out, int32_t n_vocab, const kvant_sampler_options *options) {
    kvant_sampler_options o = KVANT_SAMPLER_OPTIONS_INIT;
    if (options) memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (n_vocab < 1) return kv_fail(KVANT_INVALID, "sampler: a vocabulary of %d tokens", n_vocab);
    KV_TRY(check_options(&o, n_vocab));
    kv_sampler *s = kv_alloc(1, sizeof *s);
    if (!s) return KVANT_NO_MEMORY;
    kvant_logit_bias *bias = kv_alloc((size_t)o.n_bias, sizeof *bias);
    s->n_vocab = n_vocab;
    s->history = kv_alloc((size_t)o.repeat_last_n, sizeof *s->history);
    s->counts = kv_alloc((size_t)n_vocab, sizeof *s->counts);
    s->candidates = kv_alloc((size_t)n_vocab, sizeof *s->candidates);
    s->weights = kv_alloc((size_t)n_vocab, sizeof *s->weights);
    if (bias && o.n_bias) memcpy(bias, o.bias, (size_t)o.n_bias * sizeof *bias);
    o.bias = bias;
    s->options = o;
    if (!bias || !s->history || !s->counts || !s->candidates || !s->weights) {
        kv_sampler_destroy(s);
        return KVANT_NO_MEMORY;
    }
    kv_sampler_reset(s);
    *out = s;
    return KVANT_OK;
}

void kv_sampler_destroy(kv_sampler *s) {
    if (!s) return;
    kv_free((void *)(uintptr_t)s->options.bias);
    kv_free(s->history);
    kv_free(s->counts);
    kv_free(s->candidates);
    kv_free(s->weights);
    kv_free(s);
}

/* ---- history ---- */

void kv_sampler_accept(kv_sampler *s, int32_t token) {
    if (token < 0 || token >= s->n_vocab || s->options.repeat_last_n == 0) return;
    if (s->n_history == s->options.repeat_last_n)
        s->counts[s->history[s->next]]--;
    else
        s->n_history++;
    s->history[s->next] = token;
    s->counts[token]++;
    s->next = (s->next + 1) % s->options.repeat_last_n;
}

void kv_sampler_reset(kv_sampler *s) {
    s->n_history = s->next = 0;
    memset(s->counts, 0, (size_t)s->n_vocab * sizeof *s->counts);
    kv_random_init(&s->random, s->options.seed);
}

/* ---- candidates ---- */

static bool before(candidate a, candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static float penalized(const kvant_sampler_options *o, float logit, int32_t count) {
    logit = logit > 0 ? logit / o->repeat_penalty : logit * o->repeat_penalty;
    return fminf(logit, FLT_MAX) - o->presence_penalty - o->frequency_penalty * (float)count;
}

/* All tokens with their biased and penalized logits. */
static kv_status load(kv_sampler *s, const float *logits) {
    candidate *c = s->candidates;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (!(logits[i] < INFINITY))
            return kv_fail(KVANT_FAILED, "sampler: the logit of token %d is %g", i, (double)logits[i]);
        c[i] = (candidate){logits[i], i};
    }
    for (int32_t i = 0; i < s->options.n_bias; i++)
        c[s->options.bias[i].token].logit += s->options.bias[i].bias;
    for (int32_t i = 0; i < s->n_history; i++) {
        int32_t token = s->history[i];
        if (s->counts[token] == 0) continue; /* done already */
        c[token].logit = penalized(&s->options, c[token].logit, s->counts[token]);
        s->counts[token] = 0;
    }
    for (int32_t i = 0; i < s->n_history; i++) s->counts[s->history[i]]++;
    s->n_candidates = s->n_vocab;
    return KVANT_OK;
}

static candidate find_best(const candidate *c, int32_t n) {
    candidate best = c[0];
    for (int32_t i = 1; i < n; i++)
        if (before(c[i], best)) best = c[i];
    return best;
}

/* A heap whose root is the last of its candidates in order. */
static void sift_down(candidate *heap, int32_t n, candidate c) {
    int32_t i = 0;
    for (int32_t child = 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && before(heap[child], heap[child + 1])) child++;
        if (before(heap[child], c)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = c;
}

static void sift_up(candidate *heap, int32_t i, candidate c) {
    for (; i > 0 && before(heap[(i - 1) / 2], c); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
}

/* Leaves the first k candidates, in order. */
static void sort_first(kv_sampler *s, int32_t k) {
    candidate *c = s->candidates;
    for (int32_t i = 0; i < s->n_candidates; i++) {
        if (i < k)
            sift_up(c, i, c[i]);
        else if (before(c[i], c[0]))
            sift_down(c, k, c[i]);
    }
    if (s->n_candidates > k) s->n_candidates = k;
    for (int32_t n = s->n_candidates; n > 1; n--) {
        candidate last = c[0], moved = c[n - 1];
        sift_down(c, n - 1, moved);
        c[n - 1] = last;
    }
}

/* Fills weights with exp((logit - best) / temperature); returns their sum. */
static double weigh(kv_sampler *s, float best, float temperature) {
    double sum = 0;
    for (int32_t i = 0; i < s->n_candidates; i++) {
        s->weights[i] = exp(((double)s->candidates[i].logit - (double)best) / (double)temperature);
        sum += s->weights[i];
    }
    return sum;
}

/* Drops what weighs less. The order stays; the weights are to be filled anew. */
static void keep_from(kv_sampler *s, double weight) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_candidates; i++)
        if (s->weights[i] >= weight) s->candidates[n++] = s->candidates[i];
    s->n_candidates = n;
}

/* Top-k, then the shortest run of the most probable ones that has top_p of the probability. Without top-k,
 * those are dropped first that weigh so little that all of them together are less than what top-p leaves out:
 * there is little to sort then. */
static void cut_by_order(kv_sampler *s, float best) {
    const kvant_sampler_options *o = &s->options;
    double sum = 0, top_p = (double)o->top_p;
    if (o->top_k) {
        sort_first(s, o->top_k);
        sum = weigh(s, best, 1);
    } else {
        sum = weigh(s, best, 1);
        keep_from(s, (1 - top_p) * sum / s->n_vocab);
        sort_first(s, s->n_candidates);
        weigh(s, best, 1);
    }
    double kept = 0;
    for (int32_t i = 0; i < s->n_candidates && top_p < 1; i++) {
        kept += s->weights[i];
        if (kept >= top_p * sum) s->n_candidates = i + 1;
    }
}

static int32_t draw(kv_sampler *s, double sum) {
    double left = kv_random_unit(&s->random) * sum;
    int32_t last = 0;
    for (int32_t i = 0; i < s->n_candidates; i++) {
        if (s->weights[i] > 0) last = i;
        left -= s->weights[i];
        if (left < 0) break;
    }
    return s->candidates[last].id; /* rounding may leave a rest behind the last one */
}

kv_status kv_sampler_draw(int32_t *out, kv_sampler *s, const float *logits) {
    const kvant_sampler_options *o = &s->options;
    KV_TRY(load(s, logits));
    candidate best = find_best(s->candidates, s->n_candidates);
    if (!(best.logit > -INFINITY))
        return kv_fail(KVANT_FAILED, "sampler: no token is possible, all logits are -inf");
    if (o->temperature <= 0) {
        *out = best.id;
        return KVANT_OK;
    }
    if (o->top_k || o->top_p < 1) cut_by_order(s, best.logit);
    weigh(s, best.logit, 1);
    keep_from(s, (double)o->min_p);
    *out = draw(s, weigh(s, best.logit, o->temperature));
    return KVANT_OK;
}
