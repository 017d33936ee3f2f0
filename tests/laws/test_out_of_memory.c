/* Memory that runs out anywhere: a whole use of the library (open, session, evaluation, generation, a chat of
 * two turns, close) is repeated with allocation n failing and all behind it, n growing until it succeeds.
 * Every failure is KVANT_NO_MEMORY with a message, leaves its object as it was, leaks nothing (the sanitizer
 * runs see that), and afterwards the same process answers as a fresh one does.
 */
#include "base/memory.h"
#include "base/status.h"
#include "session_fixture.h"

/* What a use of the library produced, to compare with. */
typedef struct answer {
    float logits[4];
    char text[512];
    size_t n_text;
} answer;

static bool append_text(void *user, const char *text, size_t n) {
    answer *a = user;
    if (a->n_text + n < sizeof a->text) memcpy(a->text + a->n_text, text, n);
    a->n_text += n;
    return true;
}

#define TRY(call)                          \
    do {                                   \
        kvant_status try_status = (call);  \
        if (try_status) return try_status; \
    } while (0)

static kvant_status use_session(kvant_session *s, const kvant_model *m, answer *a) {
    int64_t end = kvant_seq_end(s, 1);
    kvant_token tokens[40];
    for (int i = 0; i < 40; i++) tokens[i] = fixture_token(m, i);
    kvant_status status = kvant_eval(s, &(kvant_chunk){1, tokens, 40, KVANT_LOGITS_LAST}, 1);
    if (status) assert_int_equal(kvant_seq_end(s, 1), end); /* as before the call */
    TRY(status);
    memcpy(a->logits, kvant_logits(s, 0), sizeof a->logits);
    TRY(kvant_seq_drop(s, 1, 3, 30));
    TRY(kvant_seq_copy(s, 2, 1));
    return kvant_eval(s, &(kvant_chunk){2, tokens, 3, KVANT_LOGITS_ALL}, 1);
}

static kvant_generate_options options_of(answer *a) {
    kvant_generate_options o = KVANT_GENERATE_OPTIONS_INIT;
    o.max_tokens = 5;
    o.ignore_end = true;
    o.text = append_text;
    o.user = a;
    return o;
}

static kvant_status use_generate(kvant_session *s, kvant_model *m, kvant_sampler *sampler, answer *a) {
    kvant_token prompt[8];
    size_t n = 0;
    TRY(kvant_tokenize(m, "a b c", 5, KVANT_TOKENIZE_BOS_EOS, prompt, 8, &n));
    static const char *const stop[] = {"never to be seen"};
    kvant_generate_options o = options_of(a);
    o.stop = stop;
    o.n_stop = 1;
    return kvant_generate(s, 3, sampler, prompt, n, &o, NULL);
}

static kvant_status use_chat(kvant_chat *c, kvant_sampler *sampler, answer *a) {
    kvant_generate_options o = options_of(a);
    for (int turn = 0; turn < 2; turn++) {
        int32_t count = kvant_chat_count(c);
        kvant_status status = kvant_chat_add(c, "user", "what is a cache?");
        if (status) assert_int_equal(kvant_chat_count(c), count);
        TRY(status);
        status = kvant_chat_reply(c, sampler, &o, NULL);
        if (status) assert_int_equal(kvant_chat_count(c), count + 1);
        TRY(status);
    }
    return KVANT_OK;
}

static kvant_status use_model(kvant_model *m, answer *a) {
    kvant_session *s = NULL;
    kvant_sampler *sampler = NULL;
    kvant_chat *chat = NULL;
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.n_ctx = 512;
    o.n_batch = 16;
    o.n_sequences = 4;
    kvant_sampler_options so = KVANT_SAMPLER_OPTIONS_INIT;
    kvant_chat_options co = KVANT_CHAT_OPTIONS_INIT;
    co.template_name = "chatml";
    kvant_status status = kvant_session_create(&s, m, &o);
    if (!status) status = use_session(s, m, a);
    if (!status) status = kvant_sampler_create(&sampler, m, &so);
    if (!status) status = use_generate(s, m, sampler, a);
    if (!status) status = kvant_chat_create(&chat, s, 0, &co);
    if (!status) status = use_chat(chat, sampler, a);
    kvant_chat_close(chat);
    kvant_sampler_close(sampler);
    kvant_session_close(s);
    return status;
}

static kvant_status use_library(const char *path, answer *a) {
    *a = (answer){0};
    kvant_model_options o = KVANT_MODEL_OPTIONS_INIT;
    o.n_threads = 2;
    kvant_model *m = NULL;
    kvant_status status = kvant_model_open(&m, path, &o);
    if (status)
        assert_null(m);
    else
        status = use_model(m, a);
    kvant_model_close(m);
    return status;
}

static void check_same(const answer *a, const answer *b) {
    assert_memory_equal(a->logits, b->logits, sizeof a->logits);
    assert_int_equal(a->n_text, b->n_text);
    assert_memory_equal(a->text, b->text, sizeof a->text);
}

/* Every allocation up to `dense`, then with strides that grow. */
static void sweep(const char *path, int64_t dense) {
    answer fresh, now;
    fixture_check(use_library(path, &fresh));
    int64_t n = 0, tries = 0;
    for (;; n += n < dense ? 1 : n / 32 + 1, tries++) {
        kv_fail(KVANT_OK, "no message");
        kv_alloc_fail_after(n);
        kvant_status status = use_library(path, &now);
        kv_alloc_fail_after(-1);
        if (!status) break;
        if (status != KVANT_NO_MEMORY)
            fail_msg("allocation %lld fails: status %s (%s)", (long long)n, kvant_status_text(status),
                     kvant_last_error());
        if (!strstr(kvant_last_error(), "out of memory"))
            fail_msg("allocation %lld fails: the message is \"%s\"", (long long)n, kvant_last_error());
        if (tries % 64 == 0) {
            fixture_check(use_library(path, &now));
            check_same(&fresh, &now);
        }
    }
    check_same(&fresh, &now);
    print_message("  %s: %lld failures, the last with %lld allocations before it\n", path, (long long)tries,
                  (long long)n);
    assert_true(n > 200); /* or the hook has stopped working */
}

static void test_tiny1(void **state) {
    (void)state;
    sweep(FIXTURE_DATA "tiny1.gguf", 300);
}

static void test_tiny4(void **state) {
    (void)state;
    sweep(FIXTURE_DATA "tiny4.gguf", 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiny1), cmocka_unit_test(test_tiny4)};
    return cmocka_run_group_tests_name("out of memory", tests, NULL, NULL);
}
