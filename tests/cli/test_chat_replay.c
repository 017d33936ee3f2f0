/* test_chat_replay: a recorded conversation of twelve turns in a context of 512 tokens, once as the program
 * runs it (8-bit activations, KV in f16 or q8_0) and once with f32 for everything. Both sessions go through
 * the same messages, the same generated lengths and so the same shifts; before each reply the distributions
 * of its first token are compared. ctest: slow */
#include "kvant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_CTX = 512, N_TURNS = 12, REPLY_TOKENS = 8, LINE_BYTES = 4096 };

#define MODELS     KVANT_SOURCE_DIR "/.cache/models/"
#define TRANSCRIPT KVANT_SOURCE_DIR "/tests/cli/chat_transcript.txt"

/* The divergence of any turn, and the mean of all, that a model and a cache type may have. It is what
 * activations of 8 bits (and q8_0) cost, with or without a shift in between. Measured, most and mean: 0.011
 * and 0.0033, 0.010 and 0.0042, 0.005 and 0.00073. */
typedef struct replay {
    const char *name, *path, *kv;
    bool optional;
    double most, most_mean;
} replay;

static const replay replays[] = {
    {"smollm2 f16", MODELS "smollm2-135m-q4_1.gguf", "f16", false, 0.03, 0.008},
    {"smollm2 q8_0", MODELS "smollm2-135m-q4_1.gguf", "q8_0", false, 0.03, 0.008},
    {"qwen f16", MODELS "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "f16", true, 0.01, 0.003},
};
enum { N_REPLAYS = sizeof replays / sizeof *replays };

typedef struct side {
    kvant_session *session;
    kvant_sampler *sampler;
    kvant_chat *chat;
    int32_t n_shifts;
} side;

static void open_side(side *s, kvant_model *model, kvant_act act, const char *type) {
    kvant_session_options session = KVANT_SESSION_OPTIONS_INIT;
    kvant_sampler_options sampler = KVANT_SAMPLER_OPTIONS_INIT;
    kvant_chat_options chat = KVANT_CHAT_OPTIONS_INIT;
    session.n_ctx = N_CTX;
    session.act = act;
    session.type_k = session.type_v = type;
    sampler.temperature = 0;
    chat.context = KVANT_CONTEXT_SHIFT;
    assert_int_equal(kvant_session_create(&s->session, model, &session), KVANT_OK);
    assert_int_equal(kvant_sampler_create(&s->sampler, model, &sampler), KVANT_OK);
    assert_int_equal(kvant_chat_create(&s->chat, s->session, 0, &chat), KVANT_OK);
}

static void close_side(side *s) {
    kvant_chat_close(s->chat);
    kvant_sampler_close(s->sampler);
    kvant_session_close(s->session);
}

/* Exactly n tokens, whatever the model says, so that both sides need the same room; then they are taken back.
 */
static void generate(side *s, int32_t n) {
    kvant_generate_options options = KVANT_GENERATE_OPTIONS_INIT;
    kvant_generate_result result = KVANT_GENERATE_RESULT_INIT;
    options.max_tokens = n;
    options.ignore_end = true;
    options.context = KVANT_CONTEXT_SHIFT;
    assert_int_equal(kvant_chat_reply(s->chat, s->sampler, &options, &result), KVANT_OK);
    assert_int_equal(result.n_generated, n);
    s->n_shifts += result.n_shifts;
    assert_int_equal(kvant_chat_pop(s->chat), KVANT_OK);
}

static double log_sum(const float *logits, int32_t n) {
    double most = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++) most = fmax(most, (double)logits[i]);
    for (int32_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return most + log(sum);
}

/* KL(exact || fast) of the last logits of both. */
static double divergence(const side *exact, const side *fast, int32_t n_vocab) {
    const float *p = kvant_logits(exact->session, 0), *q = kvant_logits(fast->session, 0);
    assert_non_null(p);
    assert_non_null(q);
    double p_sum = log_sum(p, n_vocab), q_sum = log_sum(q, n_vocab), kl = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        double log_p = (double)p[i] - p_sum;
        kl += exp(log_p) * (log_p - ((double)q[i] - q_sum));
    }
    return kl;
}

/* Messages that fell out of the context, which must be the same ones on both sides. */
static int32_t count_dropped(const side *a, const side *b) {
    int32_t n = 0;
    assert_int_equal(kvant_chat_count(a->chat), kvant_chat_count(b->chat));
    for (int32_t i = 0; i < kvant_chat_count(a->chat); i++) {
        bool in_a, in_b;
        assert_int_equal(kvant_chat_message(a->chat, i, NULL, NULL, &in_a), KVANT_OK);
        assert_int_equal(kvant_chat_message(b->chat, i, NULL, NULL, &in_b), KVANT_OK);
        assert_int_equal(in_a, in_b);
        n += !in_a;
    }
    return n;
}

/* The next message of the transcript, "role: text", with \n for line breaks; false at its end. */
static bool read_message(FILE *file, char line[LINE_BYTES], char **role, char **text) {
    if (!fgets(line, LINE_BYTES, file)) return false;
    line[strcspn(line, "\n")] = 0;
    *role = line;
    *text = strstr(line, ": ");
    assert_non_null(*text);
    **text = 0;
    *text += 2;
    char *to = *text;
    for (const char *from = *text; (*to = *from); from++, to++)
        if (from[0] == '\\' && from[1] == 'n') *to = '\n', from++;
    return true;
}

static void add(side *s, const char *role, const char *text) {
    assert_int_equal(kvant_chat_add(s->chat, role, text), KVANT_OK);
}

static void test_replay(void **state) {
    const replay *r = *state;
    if (r->optional && access(r->path, R_OK) != 0) {
        print_message("skipped: no %s\n", r->path);
        skip();
    }
    kvant_model *model = NULL;
    kvant_model_info info = KVANT_MODEL_INFO_INIT;
    side fast = {0}, exact = {0};
    assert_int_equal(kvant_model_open(&model, r->path, NULL), KVANT_OK);
    kvant_model_get_info(model, &info);
    open_side(&fast, model, KVANT_ACT_FAST, r->kv);
    open_side(&exact, model, KVANT_ACT_F32, "f32");
    FILE *file = fopen(TRANSCRIPT, "r");
    assert_non_null(file);
    char line[LINE_BYTES], *role, *text;
    double sum = 0;
    int32_t n_turns = 0, n_dropped = 0, n_drops = 0;
    while (read_message(file, line, &role, &text)) {
        add(&fast, role, text);
        add(&exact, role, text);
        if (strcmp(role, "user") != 0) continue;
        generate(&fast, 1); /* the logits are those in front of the reply */
        generate(&exact, 1);
        double kl = divergence(&exact, &fast, info.n_vocab);
        generate(&fast, REPLY_TOKENS);
        generate(&exact, REPLY_TOKENS);
        int32_t dropped = count_dropped(&fast, &exact);
        print_message("turn %2d: KL %.5f, %d messages dropped\n", ++n_turns, kl, dropped);
        assert_true(kl >= -1e-9 && kl < r->most);
        n_drops += dropped > n_dropped;
        n_dropped = dropped;
        sum += kl;
    }
    print_message("mean KL %.5f, messages were dropped %d times\n", sum / n_turns, n_drops);
    assert_int_equal(n_turns, N_TURNS);
    assert_true(n_drops >= 2);
    assert_true(sum / n_turns < r->most_mean);
    fclose(file);
    close_side(&exact);
    close_side(&fast);
    kvant_model_close(model);
}

int main(void) {
    struct CMUnitTest tests[N_REPLAYS];
    for (size_t i = 0; i < N_REPLAYS; i++)
        tests[i] = (struct CMUnitTest){replays[i].name, test_replay, NULL, NULL, (void *)&replays[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
