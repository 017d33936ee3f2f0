/* Logits and greedy tokens against the golden files: numbers of an independent forward pass in float64 over
 * the same weights (tools/golden). Every model of tests/data and the real ones in the model cache, in several
 * modes:
 *
 *   exact        activations, probabilities and cache in f32: the golden numbers up to rounding
 *   exact-split  the same with the prompt in batches of 33: results must not depend on the split
 *   q8_0         everything f32 but the cache
 *   fast         what a user gets: 8-bit activations and an f16 cache
 *
 * ctest: slow
 */
#include "golden_file.h"

#include <math.h>

typedef struct mode {
    const char *name;
    kvant_act act;
    const char *kv;
    int32_t n_batch;
} mode;

/* What is allowed: the mean divergence over the prompts, the divergence of one prompt, the error of one
 * logit. */
typedef struct bounds {
    double mean_kl, max_kl, logit_error;
} bounds;

typedef struct golden_case {
    const char *folder, *model;
    bool optional;
    const mode *mode;
    bounds allowed;
    char name[96];
} golden_case;

typedef struct figures {
    double kl_sum, max_kl, max_error;
    int32_t n_prompts, n_same, n_choices;
} figures;

static double log_sum_exp(const float *row, int32_t n) {
    double max = row[0], sum = 0;
    for (int32_t i = 1; i < n; i++) max = row[i] > max ? row[i] : max;
    for (int32_t i = 0; i < n; i++) sum += exp(row[i] - max);
    return max + log(sum);
}

/* KL(golden || row) and the largest error of a listed logit; the estimate of the tail is in
 * tools/golden/README.md. */
static double divergence(const golden_prompt *p, const float *row, double *max_error) {
    double lse = log_sum_exp(row, p->n_vocab), kl = 0, p_tail = 1, q_tail = 1, tail_sum = 0, tail_square = 0;
    for (int32_t i = 0; i < p->n_top + p->n_other; i++) {
        double log_p = p->logits[i] - p->lse, log_q = row[p->ids[i]] - lse;
        double error = row[p->ids[i]] - p->logits[i];
        *max_error = fmax(*max_error, fabs(error));
        if (i < p->n_top) {
            kl += exp(log_p) * (log_p - log_q);
            p_tail -= exp(log_p);
            q_tail -= exp(log_q);
        } else {
            tail_sum += error;
            tail_square += error * error;
        }
    }
    if (p->n_other) {
        double mean = tail_sum / p->n_other, variance = tail_square / p->n_other - mean * mean;
        kl += p_tail * (log(p_tail / q_tail) + variance / 2);
    }
    return kl;
}

static kvant_token likeliest(const float *row, int32_t n) {
    kvant_token best = 0;
    for (int32_t i = 1; i < n; i++) best = row[i] > row[best] ? i : best;
    return best;
}

static void eval(kvant_session *session, const kvant_token *tokens, int32_t n_tokens) {
    kvant_chunk chunk = {.tokens = tokens, .n_tokens = n_tokens, .logits = KVANT_LOGITS_LAST};
    golden_check(kvant_eval(session, &chunk, 1));
}

/* Feeds the golden tokens, so each choice is a comparison of its own. A near tie may go the other way. */
static void compare_greedy(kvant_session *session, const golden_prompt *p, const golden_case *c,
                           figures *sum) {
    for (int32_t i = 0; i < p->n_greedy; i++) {
        const golden_choice *want = &p->greedy[i];
        kvant_token got = likeliest(kvant_logits(session, 0), p->n_vocab);
        if (got != want->token && want->margin > 2 * c->allowed.logit_error) {
            fail_msg("%s, prompt %s: token %d is %d, golden %d with a margin of %g", c->name, p->name, i, got,
                     want->token, want->margin);
        }
        sum->n_same += got == want->token;
        sum->n_choices++;
        if (i + 1 < p->n_greedy) eval(session, &want->token, 1);
    }
}

static void compare_prompt(kvant_model *model, const golden_prompt *p, const golden_case *c, figures *sum) {
    int32_t n_ctx = p->n_greedy;
    for (int32_t i = 0; i < p->n_steps; i++) n_ctx += p->steps[i].n_tokens;
    kvant_session_options options = KVANT_SESSION_OPTIONS_INIT;
    options.n_ctx = p->n_ctx ? p->n_ctx : n_ctx;
    options.n_batch = c->mode->n_batch;
    options.type_k = options.type_v = c->mode->kv;
    options.act = c->mode->act;
    kvant_session *session = NULL;
    golden_check(kvant_session_create(&session, model, &options));
    for (int32_t i = 0; i < p->n_steps; i++) {
        const golden_step *step = &p->steps[i];
        if (step->tokens)
            eval(session, step->tokens, step->n_tokens);
        else
            golden_check(kvant_seq_drop(session, 0, step->first, step->end));
    }
    assert_int_equal(kvant_n_logits(session), 1);
    double kl = divergence(p, kvant_logits(session, 0), &sum->max_error);
    if (!(kl <= c->allowed.max_kl)) {
        fail_msg("%s, prompt %s: KL %.3g, allowed %.3g", c->name, p->name, kl, c->allowed.max_kl);
    }
    sum->kl_sum += kl;
    sum->max_kl = fmax(sum->max_kl, kl);
    sum->n_prompts++;
    compare_greedy(session, p, c, sum);
    kvant_session_close(session);
}

static void test_model(void **state) {
    const golden_case *c = (const golden_case *)*state;
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.gguf", c->folder, c->model);
    kvant_model *model = golden_open_model(path, c->optional);
    snprintf(path, sizeof(path), KVANT_SOURCE_DIR "/tests/data/%s.golden", c->model);
    FILE *file = golden_open(path, "kvant-golden");
    figures sum = {0};
    golden_prompt prompt;
    while (golden_read_prompt(file, &prompt)) {
        compare_prompt(model, &prompt, c, &sum);
        golden_clear_prompt(&prompt);
    }
    fclose(file);
    kvant_model_close(model);
    double mean_kl = sum.kl_sum / sum.n_prompts;
    print_message("%s: KL mean %.2g, max %.2g; largest logit error %.2g; %d of %d greedy tokens\n", c->name,
                  mean_kl, sum.max_kl, sum.max_error, sum.n_same, sum.n_choices);
    if (!(mean_kl <= c->allowed.mean_kl)) fail_msg("mean KL %.3g, allowed %.3g", mean_kl, c->allowed.mean_kl);
    if (!(sum.max_error <= c->allowed.logit_error)) {
        fail_msg("logit error %.3g, allowed %.3g", sum.max_error, c->allowed.logit_error);
    }
}

static const mode modes[] = {
    {"exact", KVANT_ACT_F32, "f32", 0},
    {"exact-split", KVANT_ACT_F32, "f32", 33},
    {"q8_0", KVANT_ACT_F32, "q8_0", 0},
    {"fast", KVANT_ACT_FAST, "f16", 0},
};
enum { N_MODES = sizeof(modes) / sizeof(modes[0]) };

static const char *const synthetic[] = {
    "tiny1",      "tiny4",       "tiny-swa",       "tiny-out",   "llama-nemo", "llama-hd80",
    "llama-bias", "llama-f32",   "llama-linear",   "llama-yarn", "qwen3",      "qwen3-yarn",
    "gemma2",     "gemma3-keys", "llama3-factors", "phi3",       "phi3-long",
};
enum { N_SYNTHETIC = sizeof(synthetic) / sizeof(synthetic[0]) };

/* By mode. */
static const bounds synthetic_bounds[N_MODES] = {
    {1e-5, 1e-5, 1e-3}, {1e-5, 1e-5, 1e-3}, {1e-2, 1e-2, 1}, {1e-1, 1e-1, 2}};

static const struct {
    const char *model;
    bool optional;
    bounds exact, fast;
} real[] = {
    {"smollm2-135m-q4_1", false, {1e-5, 1e-5, 1e-2}, {6e-3, 2e-2, 2}},
    {"gemma3-270m-q4_k_m", true, {1e-5, 1e-5, 1e-2}, {9e-3, 3e-2, 2}},
    {"qwen2.5-coder-0.5b-instruct-q4_k_m", true, {1e-5, 1e-5, 1e-2}, {6e-4, 2e-3, 2}},
};
enum { N_REAL = sizeof(real) / sizeof(real[0]) };

static void add_case(struct CMUnitTest *test, golden_case *c, golden_case value) {
    *c = value;
    snprintf(c->name, sizeof(c->name), "%s %s", c->model, c->mode->name);
    *test = (struct CMUnitTest){.name = c->name, .test_func = test_model, .initial_state = c};
}

int main(void) {
    static golden_case cases[N_SYNTHETIC * N_MODES + N_REAL * 2];
    static struct CMUnitTest tests[N_SYNTHETIC * N_MODES + N_REAL * 2];
    size_t n = 0;
    for (size_t i = 0; i < N_SYNTHETIC; i++) {
        for (size_t m = 0; m < N_MODES; m++, n++) {
            add_case(&tests[n], &cases[n],
                     (golden_case){.folder = KVANT_SOURCE_DIR "/tests/data",
                                   .model = synthetic[i],
                                   .mode = &modes[m],
                                   .allowed = synthetic_bounds[m]});
        }
    }
    for (size_t i = 0; i < N_REAL; i++) {
        for (int fast = 0; fast < 2; fast++, n++) {
            add_case(&tests[n], &cases[n],
                     (golden_case){.folder = KVANT_SOURCE_DIR "/.cache/models",
                                   .model = real[i].model,
                                   .optional = real[i].optional,
                                   .mode = &modes[fast ? N_MODES - 1 : 0],
                                   .allowed = fast ? real[i].fast : real[i].exact});
        }
    }
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
