/* How close the fast mode (8-bit activations, f16 cache) is to the exact one, which test_golden holds to the
 * golden numbers: the mean KL divergence over every position of the short prompts of a real model. A mean
 * over many positions, because that of a few prompts' last positions depends on rounding by a factor of two.
 *
 * Measured with AVX-512 kernels: 0.0032 (SmolLM2), 0.0021 (Gemma), 0.00060 (Qwen). For scale: a well-known
 * runtime is at 0.006, 0.009 and 0.0006 on eight short prompts.
 *
 * ctest: slow
 */
#include "golden_file.h"

#include <math.h>

enum { MAX_TOKENS = 64 };

typedef struct fast_case {
    const char *model;
    bool optional;
    double mean_kl; /* allowed */
} fast_case;

static double divergence(const float *exact, const float *fast, int32_t n) {
    double lse_p = golden_log_sum_exp(exact, n), lse_q = golden_log_sum_exp(fast, n), kl = 0;
    for (int32_t i = 0; i < n; i++) {
        double log_p = (double)exact[i] - lse_p;
        kl += exp(log_p) * (log_p - ((double)fast[i] - lse_q));
    }
    return kl;
}

static kvant_session *eval_prompt(kvant_model *model, kvant_act act, const char *kv,
                                  const golden_step *prompt) {
    kvant_session_options options = KVANT_SESSION_OPTIONS_INIT;
    options.n_ctx = MAX_TOKENS;
    options.act = act;
    options.type_k = options.type_v = kv;
    kvant_session *session = NULL;
    golden_check(kvant_session_create(&session, model, &options));
    kvant_chunk chunk = {.tokens = prompt->tokens, .n_tokens = prompt->n_tokens, .logits = KVANT_LOGITS_ALL};
    golden_check(kvant_eval(session, &chunk, 1));
    return session;
}

static double sum_divergence(kvant_model *model, const golden_prompt *p) {
    kvant_session *exact = eval_prompt(model, KVANT_ACT_F32, "f32", &p->steps[0]);
    kvant_session *fast = eval_prompt(model, KVANT_ACT_FAST, "f16", &p->steps[0]);
    double sum = 0;
    for (int32_t i = 0; i < p->steps[0].n_tokens; i++)
        sum += divergence(kvant_logits(exact, i), kvant_logits(fast, i), p->n_vocab);
    kvant_session_close(exact);
    kvant_session_close(fast);
    return sum;
}

static void test_close(void **state) {
    const fast_case *c = *state;
    char path[512];
    snprintf(path, sizeof(path), KVANT_SOURCE_DIR "/.cache/models/%s.gguf", c->model);
    kvant_model *model = golden_open_model(path, c->optional, NULL);
    snprintf(path, sizeof(path), KVANT_SOURCE_DIR "/tests/data/%s.golden", c->model);
    FILE *file = golden_open(path, "kvant-golden");
    golden_prompt prompt;
    double sum = 0;
    int32_t n = 0;
    while (golden_read_prompt(file, &prompt)) {
        if (prompt.steps[0].n_tokens <= MAX_TOKENS) {
            sum += sum_divergence(model, &prompt);
            n += prompt.steps[0].n_tokens;
        }
        golden_clear_prompt(&prompt);
    }
    fclose(file);
    kvant_model_close(model);
    assert_true(n > 0);
    print_message("%s: mean KL %.3g over %d positions\n", c->model, sum / n, n);
    if (!(sum / n <= c->mean_kl)) fail_msg("%s: mean KL %.3g, allowed %.3g", c->model, sum / n, c->mean_kl);
}

int main(void) {
    static fast_case cases[] = {
        {"smollm2-135m-q4_1", false, 0.006},
        {"gemma3-270m-q4_k_m", true, 0.005},
        {"qwen2.5-coder-0.5b-instruct-q4_k_m", true, 0.0009},
    };
    const struct CMUnitTest tests[] = {
        {.name = "smollm2", .test_func = test_close, .initial_state = &cases[0]},
        {.name = "gemma3", .test_func = test_close, .initial_state = &cases[1]},
        {.name = "qwen2.5", .test_func = test_close, .initial_state = &cases[2]},
    };
    return cmocka_run_group_tests_name("fast mode", tests, NULL, NULL);
}
