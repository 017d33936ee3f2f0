/* Logits and greedy tokens against the golden files: numbers of an independent forward pass in float64 over
 * the same weights (tools/golden). Every model of tests/data and the real ones in the model cache, in several
 * modes:
 *
 *   exact    activations, probabilities and cache in f32: the golden numbers up to rounding
 *   split    the same in batches of 33, then token by token: results must not depend on the split
 *   q8_0     all in f32 but the cache
 *   fast     what a user gets: 8-bit activations and an f16 cache
 *   packed   the same with a q8_0 cache: 8-bit queries, keys, probabilities and values
 *
 * exact and fast again with the kernels of lesser instruction sets. The bounds of KL and logits are at least
 * twice what was measured with AVX-512, AVX2 and scalar kernels; each case prints its figures.
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
    bool stepwise; /* the golden tokens one by one, not in one go */
    const char *cpu_mask;
} mode;

/* What is allowed: the divergence of a prompt, the error of a logit, the share of greedy tokens that differ.
 */
typedef struct bounds {
    double kl, logit_error, differ;
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

/* ---- comparing ---- */

/* KL(golden || row) and the largest error of a listed logit; the tail's share is derived in
 * tools/golden/README.md. */
static double divergence(const golden_prompt *p, const float *row, double *max_error) {
    double lse = golden_log_sum_exp(row, p->n_vocab), kl = 0, p_tail = 1, q_tail = 1, tail_sum = 0,
           tail_square = 0;
    for (int32_t i = 0; i < p->n_top + p->n_other; i++) {
        double logit = (double)row[p->ids[i]], log_p = p->logits[i] - p->lse, log_q = logit - lse;
        double error = logit - p->logits[i];
        if (!(fabs(error) <= *max_error)) *max_error = fabs(error); /* NaN too */
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

static void eval(kvant_session *session, const kvant_token *tokens, int32_t n_tokens,
                 kvant_logits_mode logits) {
    kvant_chunk chunk = {.tokens = tokens, .n_tokens = n_tokens, .logits = logits};
    golden_check(kvant_eval(session, &chunk, 1));
}

/* A near tie may go the other way. */
static void compare_choice(const float *row, const golden_prompt *p, int32_t i, const golden_case *c,
                           figures *sum) {
    const golden_choice *want = &p->greedy[i];
    assert_non_null(row);
    kvant_token got = likeliest(row, p->n_vocab);
    if (got != want->token && want->margin > 2 * c->allowed.logit_error) {
        fail_msg("%s, prompt %s: token %d is %d, golden %d with a margin of %g", c->name, p->name, i, got,
                 want->token, want->margin);
    }
    sum->n_same += got == want->token;
    sum->n_choices++;
}

/* Feeds the golden tokens, whatever was chosen, so each choice is a comparison of its own. */
static void compare_greedy(kvant_session *session, const golden_prompt *p, const golden_case *c,
                           figures *sum) {
    kvant_token *tokens = golden_array((size_t)p->n_greedy, sizeof(*tokens));
    for (int32_t i = 0; i < p->n_greedy; i++) tokens[i] = p->greedy[i].token;
    compare_choice(kvant_logits(session, 0), p, 0, c, sum);
    if (!c->mode->stepwise) eval(session, tokens, p->n_greedy - 1, KVANT_LOGITS_ALL);
    for (int32_t i = 1; i < p->n_greedy; i++) {
        if (c->mode->stepwise) eval(session, &tokens[i - 1], 1, KVANT_LOGITS_LAST);
        compare_choice(kvant_logits(session, c->mode->stepwise ? 0 : i - 1), p, i, c, sum);
    }
    free(tokens);
}

/* ---- one case ---- */

static kvant_session *create_session(kvant_model *model, const golden_prompt *p, const golden_case *c) {
    int32_t n_ctx = p->n_greedy;
    for (int32_t i = 0; i < p->n_steps; i++) n_ctx += p->steps[i].n_tokens;
    kvant_session_options options = KVANT_SESSION_OPTIONS_INIT;
    options.n_ctx = p->n_ctx ? p->n_ctx : n_ctx;
    options.n_batch = c->mode->n_batch;
    options.type_k = options.type_v = c->mode->kv;
    options.act = c->mode->act;
    kvant_session *session = NULL;
    golden_check(kvant_session_create(&session, model, &options));
    return session;
}

static void compare_prompt(kvant_model *model, const golden_prompt *p, const golden_case *c, figures *sum) {
    kvant_session *session = create_session(model, p, c);
    for (int32_t i = 0; i < p->n_steps; i++) {
        const golden_step *step = &p->steps[i];
        if (step->tokens)
            eval(session, step->tokens, step->n_tokens, KVANT_LOGITS_LAST);
        else
            golden_check(kvant_seq_drop(session, 0, step->first, step->end));
    }
    assert_int_equal(kvant_n_logits(session), 1);
    double kl = divergence(p, kvant_logits(session, 0), &sum->max_error);
    if (!(fabs(kl) <= c->allowed.kl))
        fail_msg("%s, prompt %s: KL %.3g, allowed %.3g", c->name, p->name, kl, c->allowed.kl);
    sum->kl_sum += kl;
    sum->max_kl = fmax(sum->max_kl, kl);
    sum->n_prompts++;
    compare_greedy(session, p, c, sum);
    kvant_session_close(session);
}

static kvant_model *open_model(const golden_case *c) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.gguf", c->folder, c->model);
    return golden_open_model(path, c->optional, c->mode->cpu_mask);
}

static void test_model(void **state) {
    const golden_case *c = *state;
    kvant_model *model = open_model(c);
    char path[512];
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
    print_message("%s: KL mean %.2g, max %.2g; largest logit error %.2g; %d of %d greedy tokens\n", c->name,
                  sum.kl_sum / sum.n_prompts, sum.max_kl, sum.max_error, sum.n_same, sum.n_choices);
    if (!(sum.max_error <= c->allowed.logit_error))
        fail_msg("%s: logit error %.3g, allowed %.3g", c->name, sum.max_error, c->allowed.logit_error);
    if (sum.n_choices - sum.n_same > c->allowed.differ * sum.n_choices)
        fail_msg("%s: %d of %d greedy tokens differ", c->name, sum.n_choices - sum.n_same, sum.n_choices);
}

/* ---- the cases ---- */

typedef enum mode_id {
    EXACT,
    SPLIT,
    Q8_0,
    FAST,
    PACKED,
    PACKED_AVX2,
    EXACT_SCALAR,
    FAST_AVX2,
    FAST_SCALAR,
    N_MODES
} mode_id;

static const mode modes[N_MODES] = {
    [EXACT] = {"exact", KVANT_ACT_F32, "f32", .n_batch = 0},
    [SPLIT] = {"split", KVANT_ACT_F32, "f32", .n_batch = 33, .stepwise = true},
    [Q8_0] = {"q8_0", KVANT_ACT_F32, "q8_0", .n_batch = 0},
    [FAST] = {"fast", KVANT_ACT_FAST, "f16", .stepwise = true},
    [PACKED] = {"packed", KVANT_ACT_FAST, "q8_0", .stepwise = true},
    [PACKED_AVX2] = {"packed avx2", KVANT_ACT_FAST, "q8_0", .stepwise = true, .cpu_mask = "avx2"},
    [EXACT_SCALAR] = {"exact scalar", KVANT_ACT_F32, "f32", .cpu_mask = "scalar"},
    [FAST_AVX2] = {"fast avx2", KVANT_ACT_FAST, "f16", .stepwise = true, .cpu_mask = "avx2"},
    [FAST_SCALAR] = {"fast scalar", KVANT_ACT_FAST, "f16", .stepwise = true, .cpu_mask = "scalar"},
};

/* The divergences that a coarse cache and 8-bit activations may cause. */
static const struct {
    const char *model;
    double q8_0, fast;
    double packed; /* 0: the sum of both */
} synthetic[] = {
    {"tiny1", 0.01, 0.02, 0},        {"tiny4", 0.01, 0.03, 0.13},   {"tiny-swa", 0.01, 0.02, 0},
    {"tiny-out", 0.02, 0.02, 0},     {"llama-nemo", 0.01, 0.02, 0}, {"llama-hd80", 0.01, 0.02, 0},
    {"llama-bias", 0.01, 1e-5, 0},   {"llama-f32", 0.01, 1e-5, 0},  {"llama3-factors", 0.01, 0.02, 0},
    {"llama-linear", 0.01, 0.02, 0}, {"llama-yarn", 0.01, 0.02, 0}, {"qwen3", 0.01, 0.02, 0},
    {"qwen3-yarn", 0.01, 0.02, 0},   {"gemma2", 0.01, 0.02, 0},     {"gemma3-keys", 0.01, 0.02, 0},
    {"phi3", 0.01, 0.02, 0},         {"phi3-long", 0.01, 0.08, 0},
};
enum { N_SYNTHETIC = sizeof(synthetic) / sizeof(synthetic[0]) };

static const struct {
    const char *model;
    bool optional;
} real[] = {
    {"smollm2-135m-q4_1", false},
    {"gemma3-270m-q4_k_m", true},
    {"qwen2.5-coder-0.5b-instruct-q4_k_m", true},
};
enum { N_REAL = sizeof(real) / sizeof(real[0]) };

enum { N_CASES = N_SYNTHETIC * N_MODES + N_REAL * 3 };
static golden_case cases[N_CASES];
static struct CMUnitTest tests[N_CASES];

static void add_case(size_t n, golden_case value) {
    cases[n] = value;
    snprintf(cases[n].name, sizeof(cases[n].name), "%s %s", value.model, value.mode->name);
    tests[n] =
        (struct CMUnitTest){.name = cases[n].name, .test_func = test_model, .initial_state = &cases[n]};
}

static bounds synthetic_bounds(size_t i, mode_id m) {
    if (m == PACKED || m == PACKED_AVX2) {
        double sum = synthetic[i].fast + synthetic[i].q8_0;
        return (bounds){synthetic[i].packed > 0 ? synthetic[i].packed : sum, 2, 0.15};
    }
    if (modes[m].act == KVANT_ACT_FAST) return (bounds){synthetic[i].fast, 2, 0.15};
    if (m == Q8_0) return (bounds){synthetic[i].q8_0, 1, 0.15};
    return (bounds){1e-6, 2e-4, 0};
}

static size_t add_synthetic(size_t n) {
    for (size_t i = 0; i < N_SYNTHETIC; i++) {
        for (size_t m = 0; m < N_MODES; m++) {
            add_case(n++, (golden_case){.folder = KVANT_SOURCE_DIR "/tests/data",
                                        .model = synthetic[i].model,
                                        .mode = &modes[m],
                                        .allowed = synthetic_bounds(i, (mode_id)m)});
        }
    }
    return n;
}

static size_t add_real(size_t n) {
    for (size_t i = 0; i < N_REAL; i++) {
        golden_case c = {.folder = KVANT_SOURCE_DIR "/.cache/models",
                         .model = real[i].model,
                         .optional = real[i].optional};
        c.mode = &modes[EXACT];
        c.allowed = (bounds){1e-6, 1e-3, 0};
        add_case(n++, c);
        c.mode = &modes[FAST];
        c.allowed = (bounds){0.04, 3, 0.1};
        add_case(n++, c);
        c.mode = &modes[PACKED];
        add_case(n++, c);
    }
    return n;
}

/* test_golden [PATTERN]: only the cases whose name matches, as in "tiny* fast". */
int main(int argc, char **argv) {
    add_real(add_synthetic(0));
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
