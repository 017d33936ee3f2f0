/* How far results depend on the shape of the batch: the same prompt in steps of 1, 33 and 512 tokens. Sums
 * are split differently, so logits differ by roundings in the f32 mode; in the fast mode such a difference
 * may move an activation by one step of its 8 bits, and the logits by what that weighs. SmolLM2 besides the
 * synthetic models, and its results for 1, 2, 3 and 5 threads.
 *
 * ctest: slow
 */
#include "thread_law.h"

#include <math.h>

enum { PROMPT = 150 };

/* Allowed between any two shapes: largest difference of a logit, and KL divergence. */
typedef struct bounds {
    double logit, kl;
} bounds;

/* Measured on tokens without meaning: f32 2e-5 and 1e-11, fast 0.53 and 0.0026 (SmolLM2). */
static const bounds exact = {2e-4, 1e-9}, fast = {1.5, 2e-2};

static float *last_logits(kvant_model *m, int32_t n_batch, kvant_act act, const char *kv) {
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.n_ctx = 512;
    o.n_batch = n_batch;
    o.type_k = o.type_v = kv;
    o.act = act;
    kvant_session *s = fixture_session(m, o);
    fixture_check(fixture_eval(s, m, 0, 0, PROMPT, KVANT_LOGITS_LAST));
    size_t bytes = (size_t)fixture_n_vocab(m) * sizeof(float);
    float *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, kvant_logits(s, 0), bytes);
    kvant_session_close(s);
    return copy;
}

static double log_sum(const float *x, int32_t n) {
    double max = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++) max = fmax(max, (double)x[i]);
    for (int32_t i = 0; i < n; i++) sum += exp((double)x[i] - max);
    return max + log(sum);
}

static bounds distance(const float *a, const float *b, int32_t n) {
    bounds d = {0, 0};
    double sum_a = log_sum(a, n), sum_b = log_sum(b, n);
    for (int32_t i = 0; i < n; i++) {
        double p = (double)a[i] - sum_a, q = (double)b[i] - sum_b;
        d.kl += exp(p) * (p - q);
        d.logit = fmax(d.logit, fabs((double)a[i] - (double)b[i]));
    }
    return d;
}

static void check_shapes(const char *path, kvant_act act, const char *kv, bounds allowed) {
    static const int32_t shapes[] = {512, 33, 1};
    kvant_model *m = fixture_open(path, 2);
    float *logits[3];
    bounds worst = {0, 0};
    for (int i = 0; i < 3; i++) {
        logits[i] = last_logits(m, shapes[i], act, kv);
        for (int k = 0; k < i; k++) {
            bounds d = distance(logits[k], logits[i], fixture_n_vocab(m));
            worst.logit = fmax(worst.logit, d.logit);
            worst.kl = fmax(worst.kl, d.kl);
        }
    }
    print_message("  %s, %s, KV %s: logits differ by %.2g at most, KL %.2g\n", strrchr(path, '/') + 1,
                  act == KVANT_ACT_FAST ? "fast" : "f32", kv, worst.logit, worst.kl);
    if (!(worst.logit <= allowed.logit))
        fail_msg("logits differ by %g, allowed %g", worst.logit, allowed.logit);
    if (!(worst.kl <= allowed.kl)) fail_msg("KL is %g, allowed %g", worst.kl, allowed.kl);
    for (int i = 0; i < 3; i++) free(logits[i]);
    kvant_model_close(m);
}

static void test_synthetic(void **state) {
    (void)state;
    static const char *const files[] = {FIXTURE_DATA "tiny4.gguf", FIXTURE_DATA "tiny-swa.gguf",
                                        FIXTURE_DATA "gemma2.gguf"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        check_shapes(files[i], KVANT_ACT_F32, "f32", exact);
        check_shapes(files[i], KVANT_ACT_FAST, "f16", fast);
    }
}

static void need_smollm2(void) {
    FILE *file = fopen(FIXTURE_SMOLLM2, "rb");
    if (!file) fail_msg("%s is not there (./dev fetch gets it)", FIXTURE_SMOLLM2);
    fclose(file);
}

static void test_smollm2(void **state) {
    (void)state;
    need_smollm2();
    check_shapes(FIXTURE_SMOLLM2, KVANT_ACT_F32, "f32", exact);
    check_shapes(FIXTURE_SMOLLM2, KVANT_ACT_FAST, "f16", fast);
}

static void test_smollm2_same_bits_for_any_number_of_threads(void **state) {
    (void)state;
    need_smollm2();
    static const int32_t counts[] = {1, 2, 3, 5};
    law_same_bits(FIXTURE_SMOLLM2, counts, 4, LAW_MODES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_smollm2),
        cmocka_unit_test(test_smollm2_same_bits_for_any_number_of_threads),
    };
    return cmocka_run_group_tests_name("batch shape", tests, NULL, NULL);
}
