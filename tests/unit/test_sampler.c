/* The sampler against a plain f64 oracle written from the definitions (full sort, no heaps, no shortcuts):
 * which tokens can come at all, and how often they do. Then options, ties, penalties, repetition, memory.
 *
 * ctest: single */
#include "text_fixture.h"

#include "base/random.h"
#include "text/sampler.h"

#include <float.h>
#include <math.h>

enum { N_VOCAB = 60 };

typedef struct ranked {
    double logit;
    int id;
} ranked;

static int by_rank(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

/* The distribution that the options describe. */
static void reference(const kvant_sampler_options *o, const float *logits, const int *history, int n_history,
                      double *p) {
    ranked r[N_VOCAB];
    for (int i = 0; i < N_VOCAB; i++) {
        double x = (double)logits[i];
        int count = 0;
        for (int b = 0; b < o->n_bias; b++)
            if (o->bias[b].token == i) x += (double)o->bias[b].bias;
        for (int h = n_history > o->repeat_last_n ? n_history - o->repeat_last_n : 0; h < n_history; h++)
            count += history[h] == i;
        if (count) x = x > 0 ? x / (double)o->repeat_penalty : x * (double)o->repeat_penalty;
        if (count) x -= (double)o->presence_penalty + (double)o->frequency_penalty * count;
        r[i] = (ranked){x, i};
        p[i] = 0;
    }
    qsort(r, N_VOCAB, sizeof *r, by_rank);
    int n = o->top_k && o->top_k < N_VOCAB ? o->top_k : N_VOCAB;
    double sum = 0, kept = 0;
    for (int i = 0; i < n; i++) sum += exp(r[i].logit - r[0].logit);
    for (int i = 0; o->top_p < 1 && i < n; i++)
        if ((kept += exp(r[i].logit - r[0].logit)) >= (double)o->top_p * sum) n = i + 1;
    while (n > 1 && exp(r[n - 1].logit - r[0].logit) < (double)o->min_p) n--;
    sum = 0;
    for (int i = 0; i < n; i++) sum += exp((r[i].logit - r[0].logit) / (double)o->temperature);
    for (int i = 0; i < n; i++) p[r[i].id] = exp((r[i].logit - r[0].logit) / (double)o->temperature) / sum;
}

static kv_sampler *create(const kvant_sampler_options *o, int32_t n_vocab) {
    kv_sampler *s = NULL;
    assert_ok(kv_sampler_create(&s, n_vocab, o));
    return s;
}

static int32_t draw(kv_sampler *s, const float *logits) {
    int32_t token = -1;
    assert_ok(kv_sampler_draw(&token, s, logits));
    return token;
}

static void check_distribution(const kvant_sampler_options *o, const float *logits) {
    enum { N_DRAWS = 20000 };
    static const int history[] = {3, 5, 3, 7, 3, 11, 12, 12};
    double p[N_VOCAB];
    int seen[N_VOCAB] = {0};
    kv_sampler *s = create(o, N_VOCAB);
    for (size_t i = 0; i < sizeof history / sizeof *history; i++) kv_sampler_accept(s, history[i]);
    reference(o, logits, history, sizeof history / sizeof *history, p);
    for (int i = 0; i < N_DRAWS; i++) seen[draw(s, logits)]++;
    for (int i = 0; i < N_VOCAB; i++) { /* six standard deviations */
        double expected = p[i] * N_DRAWS, slack = 6 * sqrt(expected * (1 - p[i])) + 1e-6;
        if (p[i] == 0) slack = 0;
        if (fabs(seen[i] - expected) > slack)
            fail_msg("token %d: %d times, expected %.1f", i, seen[i], expected);
    }
    kv_sampler_destroy(s);
}

static void test_distribution(void **state) {
    (void)state;
    static const kvant_logit_bias bias[] = {{1, 2.0f}, {2, -INFINITY}, {3, -1.5f}, {1, 0.5f}};
    static const float temperatures[] = {0.3f, 0.8f, 1.0f, 2.0f}, top_ps[] = {1.0f, 0.95f, 0.5f, 0.0f},
                       min_ps[] = {0.0f, 0.05f, 0.3f};
    static const int32_t top_ks[] = {0, 1, 5, 40, 1000};
    kv_random r;
    kv_random_init(&r, 7);
    for (int round = 0; round < 60; round++) {
        float logits[N_VOCAB];
        for (int i = 0; i < N_VOCAB; i++) logits[i] = 2.0f * kv_random_normal(&r);
        kvant_sampler_options o = KVANT_SAMPLER_OPTIONS_INIT;
        o.temperature = temperatures[round % 4];
        o.top_p = top_ps[round / 4 % 4];
        o.min_p = min_ps[round / 2 % 3];
        o.top_k = top_ks[round % 5];
        o.repeat_penalty = round % 2 ? 1.3f : 1.0f;
        o.presence_penalty = round % 3 == 0 ? 0.4f : 0.0f;
        o.frequency_penalty = round % 3 == 1 ? 0.2f : 0.0f;
        o.repeat_last_n = round % 7 == 0 ? 4 : 64;
        o.seed = (uint64_t)round;
        o.bias = bias;
        o.n_bias = round % 2 ? 4 : 0;
        check_distribution(&o, logits);
    }
}

static void test_greedy_and_ties(void **state) {
    (void)state;
    float logits[N_VOCAB] = {0};
    kvant_sampler_options o = KVANT_SAMPLER_OPTIONS_INIT;
    o.temperature = 0;
    kv_sampler *s = create(&o, N_VOCAB);
    assert_int_equal(draw(s, logits), 0); /* all equal: the lowest id */
    logits[9] = logits[20] = 5;
    assert_int_equal(draw(s, logits), 9);
    for (int i = 0; i < N_VOCAB; i++) logits[i] = i == 33 ? -1.0f : -INFINITY;
    assert_int_equal(draw(s, logits), 33);
    kv_sampler_destroy(s);
    memset(logits, 0, sizeof logits);
    o.temperature = 1;
    o.top_k = 3;
    o.top_p = 1;
    s = create(&o, N_VOCAB);
    for (int i = 0; i < 1000; i++) assert_true(draw(s, logits) < 3);
    for (int i = 0; i < N_VOCAB; i++) logits[i] = FLT_MAX;
    for (int i = 0; i < 1000; i++) assert_true(draw(s, logits) < 3);
    kv_sampler_destroy(s);
}

/* The window of the penalties, seen through a penalty that no logit survives. */
static void test_window(void **state) {
    (void)state;
    float logits[4] = {4, 3, 2, 1};
    kvant_sampler_options o = KVANT_SAMPLER_OPTIONS_INIT;
    o.temperature = 0;
    o.presence_penalty = 100;
    o.repeat_last_n = 2;
    kv_sampler *s = create(&o, 4);
    static const int32_t expected[] = {0, 1, 2, 0, 1, 2, 0};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        int32_t token = draw(s, logits);
        assert_int_equal(token, expected[i]);
        assert_int_equal(draw(s, logits), token); /* drawing does not record */
        kv_sampler_accept(s, token);
    }
    kv_sampler_accept(s, -1);
    kv_sampler_accept(s, 4);
    kv_sampler_reset(s);
    assert_int_equal(draw(s, logits), 0);
    kv_sampler_destroy(s);
}

static void test_repeats(void **state) {
    (void)state;
    enum { N = 200, BIG = 5000 };
    static float logits[BIG];
    kv_random r;
    kv_random_init(&r, 1);
    for (int i = 0; i < BIG; i++) logits[i] = 3.0f * kv_random_normal(&r);
    for (int32_t top_k = 0; top_k <= 40; top_k += 40) {
        kvant_sampler_options o = KVANT_SAMPLER_OPTIONS_INIT;
        int32_t first[N];
        int n_equal = 0;
        o.seed = 42;
        o.top_k = top_k;
        kv_sampler *a = create(&o, BIG);
        o.seed = 43;
        kv_sampler *b = create(&o, BIG);
        int64_t allocations = kv_alloc_count();
        for (int i = 0; i < N; i++) kv_sampler_accept(a, first[i] = draw(a, logits));
        for (int i = 0; i < N; i++) n_equal += draw(b, logits) == first[i];
        assert_true(n_equal < N / 2); /* another seed, another text */
        kv_sampler_reset(a);
        for (int i = 0; i < N; i++) {
            assert_int_equal(draw(a, logits), first[i]);
            kv_sampler_accept(a, first[i]);
        }
        assert_int_equal(kv_alloc_count(), allocations);
        kv_sampler_destroy(a);
        kv_sampler_destroy(b);
    }
}

static void check_bad_logits(const float *logits) {
    kvant_sampler_options o = KVANT_SAMPLER_OPTIONS_INIT;
    for (int greedy = 0; greedy < 2; greedy++) {
        int32_t token = 77;
        o.temperature = greedy ? 0.0f : 1.0f;
        kv_sampler *s = create(&o, 3);
        assert_int_equal(kv_sampler_draw(&token, s, logits), KVANT_FAILED);
        assert_int_equal(token, 77);
        assert_int_equal(draw(s, (float[]){-9, 99, -9}), 1); /* and goes on as before */
        kv_sampler_destroy(s);
    }
}

static void test_bad_logits(void **state) {
    (void)state;
    check_bad_logits((float[]){1, NAN, 2});
    check_bad_logits((float[]){1, INFINITY, 2});
    check_bad_logits((float[]){-INFINITY, -INFINITY, -INFINITY});
}

static void check_refused(kvant_sampler_options o, const char *name) {
    kv_sampler *s = NULL;
    assert_int_equal(kv_sampler_create(&s, N_VOCAB, &o), KVANT_INVALID);
    assert_null(s);
    if (!strstr(kv_last_error(), name)) fail_msg("'%s' does not name %s", kv_last_error(), name);
}

static void test_bad_options(void **state) {
    (void)state;
    static const kvant_logit_bias outside[] = {{N_VOCAB, 1}}, negative[] = {{-1, 1}}, nan_bias[] = {{0, NAN}};
#define REFUSED(field, value)                                 \
    do {                                                      \
        kvant_sampler_options o = KVANT_SAMPLER_OPTIONS_INIT; \
        o.field = value;                                      \
        check_refused(o, #field);                             \
    } while (0)
    REFUSED(temperature, NAN);
    REFUSED(temperature, INFINITY);
    REFUSED(top_k, -1);
    REFUSED(top_p, NAN);
    REFUSED(top_p, -0.1f);
    REFUSED(top_p, 1.1f);
    REFUSED(min_p, NAN);
    REFUSED(min_p, 2);
    REFUSED(repeat_penalty, 0);
    REFUSED(repeat_penalty, -1);
    REFUSED(repeat_penalty, NAN);
    REFUSED(presence_penalty, NAN);
    REFUSED(frequency_penalty, INFINITY);
    REFUSED(repeat_last_n, -1);
    REFUSED(n_bias, -1);
    REFUSED(n_bias, 1); /* bias is NULL */
#undef REFUSED
    kvant_sampler_options o = KVANT_SAMPLER_OPTIONS_INIT;
    o.n_bias = 1;
    o.bias = outside;
    check_refused(o, "bias");
    o.bias = negative;
    check_refused(o, "bias");
    o.bias = nan_bias;
    check_refused(o, "bias");
    kv_sampler *s = NULL;
    assert_int_equal(kv_sampler_create(&s, 0, NULL), KVANT_INVALID);
    s = create(NULL, 1); /* defaults, and the smallest vocabulary */
    assert_int_equal(draw(s, (float[]){0}), 0);
    kv_sampler_destroy(s);
    kv_sampler_destroy(NULL);
}

static void test_no_memory(void **state) {
    (void)state;
    kv_sampler *s = NULL;
    for (int64_t n = 0;; n++) {
        kv_alloc_fail_after(n);
        kv_status status = kv_sampler_create(&s, N_VOCAB, NULL);
        kv_alloc_fail_after(-1);
        if (status == KVANT_OK) break;
        assert_int_equal(status, KVANT_NO_MEMORY);
        assert_null(s);
        assert_true(n < 50);
    }
    kv_sampler_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_greedy_and_ties),
        cmocka_unit_test(test_window),       cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_bad_logits),   cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
