/* Conversations through the public API, on a small model with one layer, so that a conversation that lost
 * messages must give the logits of a new one that never had them: the same text, the same tokens, the same
 * positions. */
#include "small_session.h"

#include "base/memory.h" /* memory that runs out on purpose */

typedef struct talk {
    kvant_session *session;
    kvant_chat *chat;
    kvant_sampler *sampler;
} talk;

static talk open_talk(kvant_model *model, const char *template_name, int32_t n_ctx,
                      kvant_context_policy policy) {
    talk t = {.session = open_session(model, "f32", n_ctx, 2)};
    kvant_chat_options options = KVANT_CHAT_OPTIONS_INIT;
    kvant_sampler_options greedy = KVANT_SAMPLER_OPTIONS_INIT;
    options.template_name = template_name;
    options.context = policy;
    greedy.temperature = 0;
    assert_ok(kvant_chat_create(&t.chat, t.session, 0, &options));
    assert_ok(kvant_sampler_create(&t.sampler, model, &greedy));
    return t;
}

static void close_talk(talk *t) {
    kvant_chat_close(t->chat);
    kvant_sampler_close(t->sampler);
    kvant_session_close(t->session);
}

static kvant_status try_reply(talk *t, int32_t max_tokens, kvant_generate_result *result) {
    kvant_generate_options options = KVANT_GENERATE_OPTIONS_INIT;
    options.max_tokens = max_tokens;
    options.ignore_end = true;
    *result = (kvant_generate_result)KVANT_GENERATE_RESULT_INIT;
    return kvant_chat_reply(t->chat, t->sampler, &options, result);
}

static kvant_generate_result reply(talk *t, int32_t max_tokens) {
    kvant_generate_result result;
    assert_ok(try_reply(t, max_tokens, &result));
    assert_int_equal(result.n_generated, max_tokens);
    return result;
}

typedef struct said {
    const char *role, *text;
    bool in_context;
} said;

static said message(const talk *t, int32_t i) {
    said m;
    assert_ok(kvant_chat_message(t->chat, i, &m.role, &m.text, &m.in_context));
    return m;
}

static int32_t count_in_context(const talk *t) {
    int32_t n = 0;
    for (int32_t i = 0; i < kvant_chat_count(t->chat); i++) n += message(t, i).in_context;
    return n;
}

/* The next reply of `t` begins with the logits of a new conversation of the messages that are left. */
static void check_like_new(kvant_model *model, talk *t, const char *what) {
    talk fresh = open_talk(model, kvant_chat_template(t->chat), 512, KVANT_CONTEXT_STOP);
    for (int32_t i = 0; i < kvant_chat_count(t->chat); i++)
        if (message(t, i).in_context)
            assert_ok(kvant_chat_add(fresh.chat, message(t, i).role, message(t, i).text));
    int32_t n_seen = count_in_context(t);
    kvant_generate_result mine = reply(t, 1), theirs = reply(&fresh, 1);
    assert_int_equal(count_in_context(t), n_seen + 1);
    assert_int_equal(mine.n_prompt, theirs.n_prompt);
    double d = session_distance(t->session, fresh.session, n_vocab_of(model));
    if (!(d <= 1e-4)) fail_msg("%s, %s: logits differ by %g", kvant_chat_template(t->chat), what, d);
    assert_ok(kvant_chat_pop(t->chat));
    close_talk(&fresh);
}

static const char *const templates[] = {"chatml",  "llama3",     "gemma",      "phi3", "llama2",
                                        "mistral", "mistral-v3", "mistral-v1", "plain"};
enum { N_TEMPLATES = sizeof templates / sizeof *templates, N_CTX = 400 };
enum { OPENING = 60 }; /* tokens that open a reply at most: markup is letters to this vocabulary */

static const char *const words[] = {"the and of to in", "that was it he", "you for on with", "as his her be"};

/* System message, then exchanges until the line is long or was; every reply is tried, so the cache is in use.
 */
static void talk_until_long(talk *t, bool system, int32_t n_tokens) {
    int32_t n_before = 0;
    if (system) assert_ok(kvant_chat_add(t->chat, "system", "be at had"));
    for (int32_t i = 0;; i++) {
        assert_ok(kvant_chat_add(t->chat, "user", words[i % 4]));
        kvant_generate_result r = reply(t, 1);
        assert_ok(kvant_chat_pop(t->chat));
        if (r.n_prompt > n_tokens || r.n_shifts) return;
        assert_true(r.n_cached >= n_before - OPENING &&
                    r.n_cached <= n_before); /* only what is new is evaluated */
        n_before = r.n_prompt;
        assert_ok(kvant_chat_add(t->chat, "assistant", words[(i + 1) % 4]));
    }
}

/* Whole messages, the oldest first, never the system's, never the last user's. */
static void check_what_is_left(const talk *t, bool system) {
    int32_t n = kvant_chat_count(t->chat), i = 0;
    if (system) assert_true(message(t, i++).in_context);
    int32_t first = i;
    for (; i < n && !message(t, i).in_context; i++) {
    }
    assert_true(i > first && i < n); /* some went, not all */
    assert_string_equal(message(t, i).role, "user");
    for (; i < n; i++) assert_true(message(t, i).in_context);
}

static void test_dropping_before_a_reply(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    for (int i = 0; i < N_TEMPLATES * 2; i++) {
        bool system = i % 2;
        talk t = open_talk(model, templates[i / 2], N_CTX, KVANT_CONTEXT_SHIFT);
        talk_until_long(&t, system, N_CTX * 6 / 8);
        int32_t n_shifts = 0;
        for (int32_t turn = 0; n_shifts < 3; turn++) {
            assert_ok(kvant_chat_add(t.chat, "assistant", words[turn % 4]));
            assert_ok(kvant_chat_add(t.chat, "user", words[(turn + 2) % 4]));
            kvant_generate_result r = reply(&t, 1);
            assert_ok(kvant_chat_pop(t.chat));
            n_shifts += r.n_shifts;
            assert_in_range(r.n_prompt, 1, N_CTX - 1);
            if (n_shifts) check_what_is_left(&t, system);
            check_like_new(model, &t, "dropped before a reply");
        }
        close_talk(&t);
    }
    kvant_model_close(model);
}

static void test_dropping_within_a_reply(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    for (int i = 0; i < N_TEMPLATES * 2; i++) {
        bool system = i % 2;
        talk t = open_talk(model, templates[i / 2], N_CTX, KVANT_CONTEXT_SHIFT);
        talk_until_long(&t, system, N_CTX / 2);
        kvant_generate_result r = reply(&t, N_CTX / 2 + 20);
        assert_true(r.n_shifts > 0);
        assert_int_equal(r.finish, KVANT_FINISH_LENGTH);
        check_what_is_left(&t, system);
        assert_ok(kvant_chat_pop(t.chat));
        check_like_new(model, &t, "dropped within a reply");
        close_talk(&t);
    }
    kvant_model_close(model);
}

/* One exchange cannot be dropped: the reply ends with the context. */
static void test_nothing_left_to_drop(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    for (int policy = KVANT_CONTEXT_STOP; policy <= KVANT_CONTEXT_SHIFT; policy++) {
        talk t = open_talk(model, "plain", 64, (kvant_context_policy)policy);
        kvant_generate_result r;
        assert_ok(kvant_chat_add(t.chat, "user", "the and of"));
        assert_ok(try_reply(&t, 500, &r));
        assert_int_equal(r.finish, KVANT_FINISH_CONTEXT);
        assert_int_equal(r.n_shifts, 0);
        /* under STOP every generated token could have a cell; under SHIFT the last one was taken in hope */
        assert_int_equal(r.n_generated, 64 - r.n_prompt + (policy == KVANT_CONTEXT_SHIFT));
        assert_int_equal(count_in_context(&t), 2);
        close_talk(&t);
    }
    kvant_model_close(model);
}

/* Longer than the context whatever is dropped: refused, and nothing has been dropped for it. */
static void test_too_long(void **state) {
    (void)state;
    char text[800];
    memset(text, 'q', sizeof text - 1);
    text[sizeof text - 1] = 0;
    kvant_model *model = open_small_model("tiny1");
    talk t = open_talk(model, "plain", 100, KVANT_CONTEXT_SHIFT);
    kvant_generate_result r;
    assert_ok(kvant_chat_add(t.chat, "user", words[0]));
    reply(&t, 3);
    assert_ok(kvant_chat_add(t.chat, "user", text));
    assert_status(try_reply(&t, 3, &r), KVANT_CONTEXT_FULL);
    assert_non_null(strstr(kvant_last_error(), "room for 100"));
    assert_int_equal(kvant_chat_count(t.chat), 3);
    assert_int_equal(count_in_context(&t), 3);
    assert_ok(kvant_chat_pop(t.chat));
    assert_ok(kvant_chat_add(t.chat, "user", words[1]));
    reply(&t, 3);
    close_talk(&t);
    kvant_model_close(model);
}

/* Cells of another sequence are no room of this one. */
static void test_room_taken_by_others(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    talk t = open_talk(model, "plain", N_CTX, KVANT_CONTEXT_SHIFT);
    eval_some(t.session, 1, 0, N_CTX / 2);
    talk_until_long(&t, true, N_CTX * 3 / 8);
    assert_ok(kvant_chat_add(t.chat, "assistant", words[0]));
    assert_ok(kvant_chat_add(t.chat, "user", words[1]));
    kvant_generate_result r = reply(&t, 60);
    assert_true(r.n_shifts > 0);
    assert_int_equal(kvant_seq_tokens(t.session, 1), N_CTX / 2);
    close_talk(&t);
    kvant_model_close(model);
}

/* A stop string is not part of the reply, nor of what the cache remembers of it. */
static void test_stop_strings(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    for (int i = 0; i < N_TEMPLATES; i++) {
        talk t = open_talk(model, templates[i], 400, KVANT_CONTEXT_STOP);
        assert_ok(kvant_chat_add(t.chat, "user", words[i % 4]));
        reply(&t, 40);
        char whole[2048], stop[8];
        snprintf(whole, sizeof whole, "%s", message(&t, 1).text);
        size_t at = strlen(whole) / 2;
        while (at && ((unsigned char)whole[at] & 0xc0) == 0x80) at--;
        snprintf(stop, sizeof stop, "%.5s", whole + at); /* from the middle of the reply */
        const char *found = strstr(whole, stop);
        const char *stops[] = {"never said", stop};
        kvant_generate_options options = KVANT_GENERATE_OPTIONS_INIT;
        kvant_generate_result r = KVANT_GENERATE_RESULT_INIT;
        options.max_tokens = 40;
        options.ignore_end = true;
        options.stop = stops;
        options.n_stop = 2;
        assert_ok(kvant_chat_pop(t.chat));
        assert_ok(kvant_chat_reply(t.chat, t.sampler, &options, &r));
        assert_int_equal(r.finish, KVANT_FINISH_STOPPED);
        assert_int_equal(strlen(message(&t, 1).text), found - whole);
        assert_memory_equal(message(&t, 1).text, whole, (size_t)(found - whole));
        assert_ok(kvant_chat_add(t.chat, "user", words[0]));
        check_like_new(model, &t, "after a stop string");
        close_talk(&t);
    }
    kvant_model_close(model);
}

/* Popping and replying again gives the same reply; a conversation typed again after a clear, too. */
static void test_again(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    for (int i = 0; i < N_TEMPLATES; i++) {
        talk t = open_talk(model, templates[i], 400, KVANT_CONTEXT_STOP);
        char first[1024];
        for (int round = 0; round < 3; round++) {
            if (round == 2) assert_ok(kvant_chat_clear(t.chat));
            if (round != 1) assert_ok(kvant_chat_add(t.chat, "user", words[0]));
            kvant_generate_result r = reply(&t, 12);
            if (round == 0) snprintf(first, sizeof first, "%s", message(&t, 1).text);
            assert_string_equal(message(&t, 1).text, first);
            if (round == 1) assert_in_range(r.n_prompt - r.n_cached, 1, OPENING);
            if (round != 2) assert_ok(kvant_chat_pop(t.chat));
            if (round == 1) assert_ok(kvant_chat_pop(t.chat));
            if (round == 1) assert_status(kvant_chat_pop(t.chat), KVANT_INVALID);
        }
        close_talk(&t);
    }
    kvant_model_close(model);
}

/* Popping down to messages that were dropped: what comes then stands right behind the system message. */
static void test_popping_to_the_dropped(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    for (int i = 0; i < N_TEMPLATES * 2; i++) {
        talk t = open_talk(model, templates[i / 2], N_CTX, KVANT_CONTEXT_SHIFT);
        talk_until_long(&t, i % 2, N_CTX * 7 / 8);
        while (message(&t, kvant_chat_count(t.chat) - 1).in_context && kvant_chat_count(t.chat) > 1)
            assert_ok(kvant_chat_pop(t.chat));
        kvant_generate_result r;
        assert_int_equal(count_in_context(&t), i % 2);
        if (i % 2 == 0) assert_status(try_reply(&t, 1, &r), KVANT_INVALID); /* nothing is in sight */
        assert_ok(kvant_chat_add(t.chat, "user", words[3]));
        check_like_new(model, &t, "behind dropped messages");
        close_talk(&t);
    }
    kvant_model_close(model);
}

/* System messages stay wherever they stand. */
static void test_later_system_message(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    talk t = open_talk(model, "chatml", N_CTX, KVANT_CONTEXT_SHIFT);
    assert_ok(kvant_chat_add(t.chat, "user", words[0]));
    assert_ok(kvant_chat_add(t.chat, "assistant", words[1]));
    assert_ok(kvant_chat_add(t.chat, "system", words[2]));
    talk_until_long(&t, false, N_CTX * 7 / 8);
    reply(&t, 1);
    assert_false(message(&t, 0).in_context);
    assert_false(message(&t, 1).in_context);
    assert_true(message(&t, 2).in_context);
    assert_ok(kvant_chat_pop(t.chat));
    check_like_new(model, &t, "a system message between");
    close_talk(&t);
    kvant_model_close(model);
}

typedef struct canceller {
    kvant_session *session;
    int32_t n_calls, cancel_at, stop_at;
} canceller;

static bool cancel_or_stop(void *user, const char *text, size_t n) {
    canceller *c = user;
    (void)text;
    (void)n;
    if (++c->n_calls == c->cancel_at) kvant_session_cancel(c->session);
    return c->n_calls != c->stop_at;
}

static void test_cancel_and_stop(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    talk t = open_talk(model, "plain", N_CTX, KVANT_CONTEXT_STOP);
    kvant_generate_options options = KVANT_GENERATE_OPTIONS_INIT;
    kvant_generate_result r = KVANT_GENERATE_RESULT_INIT;
    canceller c = {.session = t.session, .cancel_at = 5};
    options.max_tokens = 50;
    options.ignore_end = true;
    options.text = cancel_or_stop;
    options.user = &c;
    assert_ok(kvant_chat_add(t.chat, "user", words[0]));
    assert_status(kvant_chat_reply(t.chat, t.sampler, &options, &r), KVANT_CANCELLED);
    assert_int_equal(r.finish, KVANT_FINISH_CANCELLED);
    assert_in_range(r.n_generated, 5, 20);
    assert_int_equal(kvant_chat_count(t.chat), 2); /* what there is of it */
    assert_true(strlen(message(&t, 1).text) > 0);
    assert_ok(kvant_chat_add(t.chat, "user", words[1]));
    assert_status(kvant_chat_reply(t.chat, t.sampler, &options, &r), KVANT_CANCELLED); /* still set */
    assert_int_equal(r.n_generated, 0);
    assert_int_equal(kvant_chat_count(t.chat), 3);
    kvant_session_resume(t.session);
    c = (canceller){.stop_at = 4};
    assert_ok(kvant_chat_reply(t.chat, t.sampler, &options, &r));
    assert_int_equal(r.finish, KVANT_FINISH_STOPPED);
    assert_int_equal(c.n_calls, 4); /* not called again */
    assert_ok(kvant_chat_add(t.chat, "user", words[2]));
    reply(&t, 5);
    close_talk(&t);
    kvant_model_close(model);
}

static void test_wrong_use(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    talk t = open_talk(model, "gemma", N_CTX, KVANT_CONTEXT_STOP);
    kvant_generate_result r;
    kvant_chat *chat = NULL;
    kvant_chat_options options = KVANT_CHAT_OPTIONS_INIT;
    assert_status(kvant_chat_create(&chat, t.session, 2, &options), KVANT_INVALID);
    assert_status(kvant_chat_create(&chat, t.session, -1, &options), KVANT_INVALID);
    assert_status(kvant_chat_create(&chat, t.session, 1, &options), KVANT_UNSUPPORTED); /* no template */
    options.template_name = "morse";
    assert_status(kvant_chat_create(&chat, t.session, 1, &options), KVANT_UNSUPPORTED);
    options.template_name = "chatml";
    options.context = (kvant_context_policy)7;
    assert_status(kvant_chat_create(&chat, t.session, 1, &options), KVANT_INVALID);
    assert_null(chat);
    assert_status(try_reply(&t, 1, &r), KVANT_INVALID); /* nothing to reply to */
    assert_status(kvant_chat_add(t.chat, "wizard", "x"), KVANT_INVALID);
    assert_status(kvant_chat_add(t.chat, "assistant", "x"), KVANT_INVALID); /* not its turn */
    assert_status(kvant_chat_add(t.chat, NULL, "x"), KVANT_INVALID);
    assert_status(kvant_chat_message(t.chat, 0, NULL, NULL, NULL), KVANT_INVALID);
    assert_int_equal(kvant_chat_count(t.chat), 0);
    assert_ok(kvant_chat_add(t.chat, "user", "x"));
    assert_status(kvant_chat_reply(t.chat, NULL, NULL, NULL), KVANT_INVALID);
    assert_status(kvant_chat_message(t.chat, 1, NULL, NULL, NULL), KVANT_INVALID);
    assert_status(kvant_chat_message(t.chat, -1, NULL, NULL, NULL), KVANT_INVALID);
    assert_ok(kvant_chat_message(t.chat, 0, NULL, NULL, NULL));
    kvant_chat_close(NULL);
    check_like_new(model, &t, "after failures");
    close_talk(&t);
    kvant_model_close(model);
}

/* One turn: two messages and a reply that drops some within it. */
static kvant_status take_turn(talk *t, kvant_generate_result *r) {
    kvant_status status = kvant_chat_add(t->chat, "assistant", words[0]);
    if (!status) status = kvant_chat_add(t->chat, "user", words[1]);
    return status ? status : try_reply(t, 120, r);
}

/* Wherever memory runs out, the conversation is as before what failed, and goes on. */
static void test_memory_runs_out(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    static const char *const formats[] = {"gemma", "llama2"};
    for (int f = 0; f < 2; f++) {
        kvant_status status = KVANT_NO_MEMORY;
        int32_t n_failed = 0;
        for (int64_t n = 0; status; n += 1 + n / 3) {
            talk t = open_talk(model, formats[f], N_CTX, KVANT_CONTEXT_SHIFT);
            kvant_generate_result r;
            talk_until_long(&t, true, N_CTX * 6 / 8);
            int32_t count = kvant_chat_count(t.chat);
            kv_alloc_fail_after(n);
            status = take_turn(&t, &r);
            kv_alloc_fail_after(-1);
            assert_true(status == KVANT_OK || status == KVANT_NO_MEMORY);
            assert_in_range(kvant_chat_count(t.chat), count, count + 3);
            if (status) {
                n_failed++;
                while (strcmp(message(&t, kvant_chat_count(t.chat) - 1).role, "user"))
                    assert_ok(kvant_chat_pop(t.chat));
                reply(&t, 1); /* may have to drop some */
                assert_ok(kvant_chat_pop(t.chat));
                check_like_new(model, &t, "after memory ran out");
            }
            close_talk(&t);
        }
        assert_true(n_failed > 5);
    }
    kvant_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropping_before_a_reply),
        cmocka_unit_test(test_dropping_within_a_reply),
        cmocka_unit_test(test_nothing_left_to_drop),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_room_taken_by_others),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_popping_to_the_dropped),
        cmocka_unit_test(test_later_system_message),
        cmocka_unit_test(test_cancel_and_stop),
        cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
