/* SmolLM2's perplexity on the first 2048 tokens of "Emma" (four windows of 512, the second half of each
 * scored, no BOS) against an independent float64 pass over the same weights, and the token ids of that text.
 *
 * ctest: slow
 */
#include "golden_file.h"

#include <math.h>

#define MODEL "smollm2-135m-q4_1"

typedef struct nll_golden {
    int32_t window, first_scored, n_tokens, n_scored;
    double perplexity;
    kvant_token *tokens;
    double *nll;
} nll_golden;

static nll_golden golden;
static kvant_model *model;

static int read_golden(void **state) {
    (void)state;
    FILE *file = golden_open(KVANT_SOURCE_DIR "/tests/data/" MODEL "-emma.nll", "kvant-nll");
    assert_int_equal(fscanf(file, " window %d first_scored %d perplexity %lf tokens %d", &golden.window,
                            &golden.first_scored, &golden.perplexity, &golden.n_tokens),
                     4);
    golden.tokens = golden_read_tokens(file, golden.n_tokens);
    assert_int_equal(fscanf(file, " nll %d", &golden.n_scored), 1);
    golden.nll = golden_array((size_t)golden.n_scored, sizeof(double));
    for (int32_t i = 0; i < golden.n_scored; i++) assert_int_equal(fscanf(file, "%lf", &golden.nll[i]), 1);
    fclose(file);
    model = golden_open_model(KVANT_SOURCE_DIR "/.cache/models/" MODEL ".gguf", false, NULL);
    return 0;
}

static int close_golden(void **state) {
    (void)state;
    kvant_model_close(model);
    free(golden.tokens);
    free(golden.nll);
    return 0;
}

static void test_tokens_of_text(void **state) {
    (void)state;
    static char text[16384];
    static kvant_token tokens[sizeof(text) + 2];
    FILE *file = fopen(KVANT_SOURCE_DIR "/tests/data/emma-12k.txt", "rb");
    assert_non_null(file);
    size_t n_bytes = fread(text, 1, sizeof(text), file), n_tokens = 0;
    fclose(file);
    golden_check(
        kvant_tokenize(model, text, n_bytes, KVANT_TOKENIZE_BOS_EOS, tokens, sizeof(text) + 2, &n_tokens));
    assert_true(n_tokens >= (size_t)golden.n_tokens);
    assert_memory_equal(tokens, golden.tokens, (size_t)golden.n_tokens * sizeof(tokens[0]));
}

/* Adds the window's scores to *sum and widens *max_error, the largest difference of one token's score. */
static void score_window(kvant_session *session, int32_t window, double *sum, double *max_error) {
    const kvant_token *tokens = golden.tokens + window * golden.window;
    kvant_model_info info = KVANT_MODEL_INFO_INIT;
    kvant_model_get_info(model, &info);
    int32_t n_scored = golden.window - golden.first_scored - 1;
    kvant_chunk head = {.tokens = tokens, .n_tokens = golden.first_scored, .logits = KVANT_LOGITS_NONE};
    kvant_chunk rest = {
        .tokens = tokens + golden.first_scored, .n_tokens = n_scored, .logits = KVANT_LOGITS_ALL};
    golden_check(kvant_seq_clear(session, 0));
    golden_check(kvant_eval(session, &head, 1));
    golden_check(kvant_eval(session, &rest, 1));
    for (int32_t i = 0; i < n_scored; i++) {
        const float *row = kvant_logits(session, i);
        double nll = golden_log_sum_exp(row, info.n_vocab) - (double)row[rest.tokens[i + 1]];
        *sum += nll;
        *max_error = fmax(*max_error, fabs(nll - golden.nll[window * n_scored + i]));
    }
}

static void compare(kvant_act act, const char *kv, double allowed_ratio, double allowed_error) {
    kvant_session_options options = KVANT_SESSION_OPTIONS_INIT;
    options.n_ctx = golden.window;
    options.act = act;
    options.type_k = options.type_v = kv;
    kvant_session *session = NULL;
    golden_check(kvant_session_create(&session, model, &options));
    double sum = 0, max_error = 0;
    for (int32_t w = 0; w < golden.n_tokens / golden.window; w++) score_window(session, w, &sum, &max_error);
    kvant_session_close(session);
    double perplexity = exp(sum / golden.n_scored);
    print_message("perplexity %.4f, golden %.4f; largest difference of one token %.2g\n", perplexity,
                  golden.perplexity, max_error);
    if (!(fabs(perplexity / golden.perplexity - 1) <= allowed_ratio))
        fail_msg("off by more than %g", allowed_ratio);
    if (!(max_error <= allowed_error)) fail_msg("a token is off by %g, allowed %g", max_error, allowed_error);
}

static void test_exact(void **state) {
    (void)state;
    compare(KVANT_ACT_F32, "f32", 1e-5, 1e-2);
}

static void test_exact_f16_cache(void **state) {
    (void)state;
    compare(KVANT_ACT_F32, "f16", 1e-3, 0.1);
}

static void test_fast(void **state) {
    (void)state;
    compare(KVANT_ACT_FAST, "f16", 1e-2, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_of_text),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_exact_f16_cache),
        cmocka_unit_test(test_fast),
    };
    return cmocka_run_group_tests(tests, read_golden, close_golden);
}
