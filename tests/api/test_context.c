/* What happens when a context is full, through the public API: the window policy for texts without end, in
 * kvant_generate and in chats; room made by hand; prompts that are too long, trimmed or refused; tokens given
 * out one by one. On a model of one layer K and V depend on a token and its position alone, so that a cache
 * from which tokens were dropped must give the logits of one that has read only what is left. */
#include "small_session.h"

#include "engine/engine.h"

enum { N_CTX = 160 };

/* Sums of floats in another order; measured: 9e-6. */
static const double F32_ERROR = 1e-4;

typedef struct bench {
    kvant_model *model;
    kvant_session *session;
    kvant_sampler *sampler;
    kvant_token line[4096]; /* the prompt and what was generated */
    int32_t n_line, stop_at;
} bench;

static bool keep_token(void *user, kvant_token token) {
    bench *b = user;
    assert_true(b->n_line < 4096);
    b->line[b->n_line++] = token;
    return b->n_line != b->stop_at;
}

static bench *open_bench(const char *kv, int32_t n_ctx) {
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->model = open_small_model("tiny1");
    b->session = open_session(b->model, kv, n_ctx, 1);
    kvant_sampler_options options = KVANT_SAMPLER_OPTIONS_INIT;
    options.seed = 11;
    assert_ok(kvant_sampler_create(&b->sampler, b->model, &options));
    return b;
}

static void close_bench(bench *b) {
    kvant_sampler_close(b->sampler);
    kvant_session_close(b->session);
    kvant_model_close(b->model);
    free(b);
}

static kvant_generate_options options_for(bench *b, kvant_context_policy policy, int32_t max_tokens) {
    kvant_generate_options o = KVANT_GENERATE_OPTIONS_INIT;
    o.context = policy;
    o.max_tokens = max_tokens;
    o.ignore_end = true;
    o.n_keep = -1;
    o.token = keep_token;
    o.user = b;
    return o;
}

static kvant_status try_generate(bench *b, int32_t n_prompt, const kvant_generate_options *o,
                                 kvant_generate_result *r) {
    assert_ok(kvant_seq_clear(b->session, 0));
    for (int32_t i = 0; i < n_prompt; i++) b->line[i] = some_token(i);
    b->n_line = n_prompt;
    *r = (kvant_generate_result)KVANT_GENERATE_RESULT_INIT;
    return kvant_generate(b->session, 0, b->sampler, b->line, (size_t)n_prompt, o, r);
}

static int32_t turns(const bench *b) { return kv_cache_frames(b->session->cache, 0); }

/* The logits behind the last token are those of a cache that has read the first n_keep tokens and the most
 * recent ones, as many as the sequence holds. */
static void check_like_reread(bench *b, int32_t n_keep) {
    int32_t n = (int32_t)kvant_seq_tokens(b->session, 0), n_recent = n - n_keep;
    kvant_session *fresh = open_session(b->model, "f32", N_CTX + 1, 1);
    if (n_keep) eval(fresh, 0, b->line, n_keep);
    eval(fresh, 0, b->line + b->n_line - 1 - n_recent, n_recent);
    assert_ok(kvant_seq_make_room(b->session, 0, 1, KVANT_CONTEXT_STOP, 0, NULL));
    eval(fresh, 0, b->line + b->n_line - 1, 1);
    eval(b->session, 0, b->line + b->n_line - 1, 1);
    assert_true(session_distance(b->session, fresh, n_vocab_of(b->model)) < F32_ERROR);
    kvant_session_close(fresh);
}

static void check_window(int32_t n_prompt, int32_t n_keep, int32_t n_generated) {
    bench *b = open_bench("f32", N_CTX);
    kvant_generate_options o = options_for(b, KVANT_CONTEXT_WINDOW, n_generated);
    kvant_generate_result r;
    o.n_keep = n_keep;
    assert_ok(try_generate(b, n_prompt, &o, &r));
    assert_int_equal(r.finish, KVANT_FINISH_LENGTH);
    assert_int_equal(r.n_generated, n_generated);
    assert_int_equal(b->n_line, n_prompt + n_generated);
    assert_true(r.n_shifts > 1);
    int32_t kept = n_keep < 0 ? 4 : n_keep;
    assert_in_range(kvant_seq_tokens(b->session, 0), N_CTX - KV_PAGE_CELLS, N_CTX);
    assert_int_equal(kvant_seq_end(b->session, 0), kvant_seq_tokens(b->session, 0)); /* renumbered */
    assert_in_range(turns(b), 1, 2);
    if (kvant_seq_tokens(b->session, 0) < N_CTX) check_like_reread(b, kept);
    close_bench(b);
}

static void test_window(void **state) {
    (void)state;
    check_window(10, -1, 1001);
    check_window(10, 0, 777);
    check_window(100, 100, 500); /* the prompt stays, fewer than two pages move on */
    check_window(N_CTX, 4, 777);
    check_window(1, N_CTX - 70, 333);
}

/* Everything is kept: nothing may go. The budget without a limit is the size of the context. */
static void test_window_ends(void **state) {
    (void)state;
    bench *b = open_bench("f16", N_CTX);
    kvant_generate_options o = options_for(b, KVANT_CONTEXT_WINDOW, 0);
    kvant_generate_result r;
    assert_ok(try_generate(b, 10, &o, &r));
    assert_int_equal(r.finish, KVANT_FINISH_LENGTH);
    assert_int_equal(r.n_generated, N_CTX);
    o.n_keep = N_CTX;
    assert_status(try_generate(b, 10, &o, &r), KVANT_INVALID);
    close_bench(b);
}

static void test_tokens(void **state) {
    (void)state;
    bench *b = open_bench("f16", N_CTX);
    kvant_generate_options o = options_for(b, KVANT_CONTEXT_STOP, 50);
    kvant_generate_result r;
    b->stop_at = 10 + 7;
    assert_ok(try_generate(b, 10, &o, &r));
    assert_int_equal(r.finish, KVANT_FINISH_STOPPED);
    assert_int_equal(r.n_generated, 7);
    close_bench(b);
}

static void test_make_room(void **state) {
    (void)state;
    bench *b = open_bench("f16", N_CTX);
    int64_t n = -1;
    eval_some(b->session, 0, 0, N_CTX);
    assert_ok(kvant_seq_make_room(b->session, 0, 0, KVANT_CONTEXT_STOP, 0, &n));
    assert_int_equal(n, 0);
    assert_status(kvant_seq_make_room(b->session, 0, 1, KVANT_CONTEXT_STOP, 0, &n), KVANT_CONTEXT_FULL);
    assert_non_null(strstr(kvant_last_error(), "of 160"));
    assert_int_equal(kvant_seq_tokens(b->session, 0), N_CTX);
    assert_ok(kvant_seq_make_room(b->session, 0, 1, KVANT_CONTEXT_WINDOW, 4, &n));
    assert_int_equal(n, KV_PAGE_CELLS);
    assert_ok(kvant_seq_make_room(b->session, 0, KV_PAGE_CELLS + 1, KVANT_CONTEXT_SHIFT, -1, &n));
    assert_int_equal(n, (N_CTX - KV_PAGE_CELLS - 4) / 2);
    assert_int_equal(turns(b), 2);
    assert_ok(kvant_seq_make_room(b->session, 0, N_CTX, KVANT_CONTEXT_WINDOW, 0, NULL));
    assert_int_equal(kvant_seq_tokens(b->session, 0), 0);
    assert_status(kvant_seq_make_room(b->session, 0, N_CTX + 1, KVANT_CONTEXT_WINDOW, 0, &n),
                  KVANT_CONTEXT_FULL);
    assert_status(kvant_seq_make_room(b->session, 1, 1, KVANT_CONTEXT_WINDOW, 0, &n), KVANT_INVALID);
    assert_status(kvant_seq_make_room(b->session, 0, -1, KVANT_CONTEXT_WINDOW, 0, &n), KVANT_INVALID);
    assert_status(kvant_seq_make_room(b->session, 0, 1, KVANT_CONTEXT_WINDOW, -2, &n), KVANT_INVALID);
    assert_status(kvant_seq_make_room(b->session, 0, 1, (kvant_context_policy)3, 0, &n), KVANT_INVALID);
    close_bench(b);
}

/* ---- prompts that do not fit */

static void check_trimmed(bench *b, kvant_context_policy policy, int32_t n_prompt, int32_t n_keep,
                          int32_t max_tokens) {
    kvant_generate_options o = options_for(b, policy, max_tokens);
    kvant_generate_result r;
    o.n_keep = n_keep;
    assert_status(try_generate(b, n_prompt, &o, &r), KVANT_CONTEXT_FULL);
    char both[80];
    snprintf(both, sizeof both, "%d tokens, the context room for %d", n_prompt, N_CTX);
    assert_non_null(strstr(kvant_last_error(), both));
    assert_int_equal(r.n_trimmed, 0);

    o.trim = true;
    assert_ok(try_generate(b, n_prompt, &o, &r));
    int32_t head = n_keep < 0 ? 4 : n_keep, answer = max_tokens < N_CTX / 4 ? max_tokens : N_CTX / 4;
    assert_int_equal(r.n_prompt, n_prompt);
    assert_int_equal(r.n_trimmed, n_prompt - (N_CTX - answer));
    assert_int_equal(r.trim_begin, head);
    assert_int_equal(r.finish, max_tokens > answer && policy == KVANT_CONTEXT_STOP ? KVANT_FINISH_CONTEXT
                                                                                   : KVANT_FINISH_LENGTH);
    assert_int_equal(r.n_generated, r.finish == KVANT_FINISH_CONTEXT ? answer : max_tokens);
    /* what is left of it: the beginning and the end */
    if (!r.n_shifts) check_like_reread(b, head);
}

static void test_trimming(void **state) {
    (void)state;
    bench *b = open_bench("f32", N_CTX);
    static const kvant_context_policy policies[] = {KVANT_CONTEXT_STOP, KVANT_CONTEXT_SHIFT,
                                                    KVANT_CONTEXT_WINDOW};
    for (int i = 0; i < 3; i++) {
        check_trimmed(b, policies[i], N_CTX + 1, -1, 300);
        check_trimmed(b, policies[i], 10 * N_CTX, 20, 300);
        check_trimmed(b, policies[i], 10 * N_CTX, 0, 5);
    }
    kvant_generate_options o = options_for(b, KVANT_CONTEXT_STOP, 1);
    kvant_generate_result r;
    o.trim = true;
    assert_ok(try_generate(b, N_CTX, &o, &r)); /* fits: nothing is left out */
    assert_int_equal(r.n_trimmed, 0);
    o.n_keep = N_CTX - 1; /* no place for the end */
    assert_status(try_generate(b, N_CTX + 1, &o, &r), KVANT_CONTEXT_FULL);
    assert_non_null(strstr(kvant_last_error(), "too few to keep 159"));
    close_bench(b);
}

/* ---- chats */

static kvant_chat *open_chat(bench *b, kvant_context_policy policy) {
    kvant_chat *chat = NULL;
    kvant_chat_options o = KVANT_CHAT_OPTIONS_INIT;
    o.template_name = "chatml";
    o.context = policy;
    assert_ok(kvant_chat_create(&chat, b->session, 0, &o));
    return chat;
}

static kvant_generate_result reply(bench *b, kvant_chat *chat, kvant_generate_options o) {
    kvant_generate_result r = KVANT_GENERATE_RESULT_INIT;
    b->n_line = 0;
    assert_ok(kvant_chat_reply(chat, b->sampler, &o, &r));
    assert_int_equal(b->n_line, r.n_generated);
    return r;
}

static bool in_context(const kvant_chat *chat, int32_t i) {
    const char *role, *text;
    bool is;
    assert_ok(kvant_chat_message(chat, i, &role, &text, &is));
    return is;
}

/* A reply longer than the context pushes out all but the system message; the conversation goes on behind it.
 */
static void test_endless_reply(void **state) {
    (void)state;
    bench *b = open_bench("f16", N_CTX);
    kvant_chat *chat = open_chat(b, KVANT_CONTEXT_WINDOW);
    kvant_generate_options o = options_for(b, KVANT_CONTEXT_STOP, 3 * N_CTX); /* the chat's policy counts */
    assert_ok(kvant_chat_add(chat, "system", "be brief"));
    assert_ok(kvant_chat_add(chat, "user", "the and of"));
    kvant_generate_result r = reply(b, chat, o);
    assert_int_equal(r.finish, KVANT_FINISH_LENGTH);
    assert_int_equal(r.n_generated, 3 * N_CTX);
    assert_true(in_context(chat, 0) && !in_context(chat, 1) && in_context(chat, 2));
    assert_in_range(turns(b), 1, 2);
    for (int i = 0; i < 20; i++) {
        o.max_tokens = 30;
        assert_ok(kvant_chat_add(chat, "user", "to in that"));
        r = reply(b, chat, o);
        assert_int_equal(r.n_generated, 30);
        assert_true(r.n_cached > 0);
        assert_in_range(kvant_seq_tokens(b->session, 0), 1, N_CTX);
        assert_in_range(turns(b), 1, 2);
        assert_true(in_context(chat, 0));
    }
    assert_false(in_context(chat, 2));
    assert_ok(kvant_chat_pop(chat)); /* again */
    assert_int_equal(reply(b, chat, o).n_generated, 30);
    assert_ok(kvant_chat_clear(chat));
    assert_int_equal(kvant_seq_tokens(b->session, 0), 0);
    kvant_chat_close(chat);
    close_bench(b);
}

/* A reply that is cut off by a stop string after its own beginning has gone. */
static void test_stop_string_in_an_endless_reply(void **state) {
    (void)state;
    bench *b = open_bench("f16", N_CTX);
    kvant_chat *chat = open_chat(b, KVANT_CONTEXT_WINDOW);
    kvant_generate_options o = options_for(b, KVANT_CONTEXT_STOP, 4 * N_CTX);
    assert_ok(kvant_chat_add(chat, "user", "the and of"));
    kvant_generate_result r = reply(b, chat, o);
    const char *role, *text;
    bool is;
    assert_ok(kvant_chat_message(chat, 1, &role, &text, &is));
    size_t n = strlen(text);
    char *stop = malloc(33);
    assert_non_null(stop);
    snprintf(stop, 33, "%s", text + n - 60); /* near its end, and nowhere before */
    const char *stops[] = {stop};
    o.stop = stops;
    o.n_stop = 1;
    kvant_sampler_reset(b->sampler);
    assert_ok(kvant_chat_clear(chat));
    assert_ok(kvant_chat_add(chat, "user", "the and of"));
    r = reply(b, chat, o);
    assert_int_equal(r.finish, KVANT_FINISH_STOPPED);
    assert_true(r.n_shifts > 2);
    assert_ok(kvant_chat_add(chat, "user", "to in that"));
    o.max_tokens = 20;
    o.n_stop = 0;
    assert_int_equal(reply(b, chat, o).n_generated, 20);
    free(stop);
    kvant_chat_close(chat);
    close_bench(b);
}

static void test_long_question(void **state) {
    (void)state;
    static const kvant_context_policy policies[] = {KVANT_CONTEXT_STOP, KVANT_CONTEXT_SHIFT,
                                                    KVANT_CONTEXT_WINDOW};
    char question[4 * N_CTX * 3] = "";
    for (int i = 0; i < 3 * N_CTX; i++) strcat(question, i % 2 ? "the " : "of ");
    for (int i = 0; i < 3; i++) {
        bench *b = open_bench("f16", N_CTX);
        kvant_chat *chat = open_chat(b, policies[i]);
        kvant_generate_options o = options_for(b, KVANT_CONTEXT_STOP, 10);
        kvant_generate_result r = KVANT_GENERATE_RESULT_INIT;
        assert_ok(kvant_chat_add(chat, "system", "be brief"));
        assert_ok(kvant_chat_add(chat, "user", question));
        assert_status(kvant_chat_reply(chat, b->sampler, &o, &r), KVANT_CONTEXT_FULL);
        assert_non_null(strstr(kvant_last_error(), "room for 160"));
        o.trim = true;
        r = reply(b, chat, o);
        assert_int_equal(r.n_generated, 10);
        assert_true(r.n_trimmed > N_CTX && r.trim_begin > 4); /* behind the system message */
        assert_true(in_context(chat, 0) && in_context(chat, 1));
        assert_ok(kvant_chat_add(chat, "user", "the"));
        assert_int_equal(reply(b, chat, o).n_generated, 10);
        kvant_chat_close(chat);
        close_bench(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window),        cmocka_unit_test(test_window_ends),
        cmocka_unit_test(test_tokens),        cmocka_unit_test(test_make_room),
        cmocka_unit_test(test_trimming),      cmocka_unit_test(test_endless_reply),
        cmocka_unit_test(test_long_question), cmocka_unit_test(test_stop_string_in_an_endless_reply),
    };
    return cmocka_run_group_tests_name("context", tests, NULL, NULL);
}
