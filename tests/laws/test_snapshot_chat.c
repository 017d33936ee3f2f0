/* Conversations that are saved and loaded: they go on token by token as if nothing had happened, with the
 * messages that were dropped still dropped; what is not a conversation of the same format changes nothing.
 *
 * ctest: single */
#include "snapshot_fixture.h"

#include "base/memory.h"
#include "engine/session_snapshot.h"

typedef struct talk {
    kvant_session *session;
    kvant_chat *chat;
    kvant_sampler *sampler;
    char text[512]; /* of the last reply */
    size_t n;
} talk;

static talk open_talk(kvant_model *model, const char *template_name, int32_t n_ctx) {
    talk t = {.session = open_session(model, "f32", n_ctx, 1)};
    kvant_chat_options options = KVANT_CHAT_OPTIONS_INIT;
    kvant_sampler_options greedy = KVANT_SAMPLER_OPTIONS_INIT;
    options.template_name = template_name;
    options.context = KVANT_CONTEXT_SHIFT;
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

static bool put_text(void *user, const char *text, size_t n) {
    talk *t = user;
    assert_true(t->n + n < sizeof t->text);
    memcpy(t->text + t->n, text, n);
    t->n += n;
    return true;
}

static kvant_generate_result say(talk *t, const char *text) {
    kvant_generate_options options = KVANT_GENERATE_OPTIONS_INIT;
    kvant_generate_result result = KVANT_GENERATE_RESULT_INIT;
    options.max_tokens = 8;
    options.ignore_end = true;
    options.text = put_text;
    options.user = t;
    memset(t->text, 0, sizeof t->text);
    t->n = 0;
    assert_ok(kvant_chat_add(t->chat, "user", text));
    assert_ok(kvant_chat_reply(t->chat, t->sampler, &options, &result));
    return result;
}

static void check_same_messages(const talk *a, const talk *b) {
    assert_int_equal(kvant_chat_count(a->chat), kvant_chat_count(b->chat));
    for (int32_t i = 0; i < kvant_chat_count(a->chat); i++) {
        const char *role[2], *text[2];
        bool in_context[2];
        assert_ok(kvant_chat_message(a->chat, i, &role[0], &text[0], &in_context[0]));
        assert_ok(kvant_chat_message(b->chat, i, &role[1], &text[1], &in_context[1]));
        assert_string_equal(role[0], role[1]);
        assert_string_equal(text[0], text[1]);
        assert_int_equal(in_context[0], in_context[1]);
    }
}

/* A context that is full twice over before, so that messages are gone and keys have turns. */
static void test_goes_on(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    talk a = open_talk(model, "chatml", 256), b = open_talk(model, "chatml", 256);
    int32_t n_shifts = 0;
    assert_ok(kvant_chat_add(a.chat, "system", "be kind"));
    for (int turn = 0; turn < 12; turn++) n_shifts += say(&a, "what is a cache?").n_shifts;
    assert_true(n_shifts > 0);
    say(&b, "another question"); /* goes */
    assert_ok(kvant_chat_save(a.chat, snapshot_path));
    assert_ok(kvant_chat_load(b.chat, snapshot_path));
    check_same_messages(&a, &b);
    for (int turn = 0; turn < 6; turn++) {
        kvant_generate_result x = say(&a, "and now?"), y = say(&b, "and now?");
        assert_string_equal(a.text, b.text);
        assert_int_equal(x.n_cached, y.n_cached);
        assert_int_equal(x.n_shifts, y.n_shifts);
        assert_true(x.n_cached > x.n_prompt / 2);
        assert_true(session_distance(a.session, b.session, n_vocab_of(model)) <= 1e-4);
    }
    check_same_messages(&a, &b);
    assert_ok(kvant_chat_pop(b.chat)); /* and back, to another reply */
    assert_ok(kvant_chat_pop(b.chat));
    say(&b, "and now?");
    assert_string_equal(a.text, b.text);
    close_talk(&a);
    close_talk(&b);
    kvant_model_close(model);
}

static void refuse(talk *t, const char *words, int32_t n_messages, int64_t n_tokens) {
    assert_int_not_equal(kvant_chat_load(t->chat, snapshot_path), KVANT_OK);
    if (!strstr(kvant_last_error(), words)) fail_msg("\"%s\" has no \"%s\"", kvant_last_error(), words);
    assert_int_equal(kvant_chat_count(t->chat), n_messages);
    assert_int_equal(kvant_seq_tokens(t->session, 0), n_tokens);
}

static void test_refused(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    talk a = open_talk(model, "chatml", 256), b = open_talk(model, "llama3", 256),
         c = open_talk(model, "chatml", 64);
    say(&a, "what is a cache?");
    say(&a, "what is a cache?");
    say(&b, "no");
    int64_t n_b = kvant_seq_tokens(b.session, 0), n_a = kvant_seq_tokens(a.session, 0);
    assert_ok(kvant_chat_save(a.chat, snapshot_path));
    refuse(&b, "a conversation in template chatml, here llama3", 2, n_b);
    refuse(&c, "context is too small", 0, 0);
    assert_ok(kvant_seq_save(a.session, 0, snapshot_path));
    refuse(&a, "no conversation in it", 4, n_a);
    assert_status(kvant_chat_load(a.chat, NULL), KVANT_INVALID);
    assert_status(kvant_chat_save(a.chat, NULL), KVANT_INVALID);
    close_talk(&a);
    close_talk(&b);
    close_talk(&c);
    kvant_model_close(model);
}

/* Notes with good checksums that make no sense: cut anywhere, or with any byte changed. */
static void test_notes_that_make_no_sense(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    talk t = open_talk(model, "chatml", 128);
    say(&t, "hello");
    assert_ok(kvant_chat_save(t.chat, snapshot_path));
    int64_t n_tokens = kvant_seq_tokens(t.session, 0);
    kv_snapshot *s = NULL;
    assert_ok(kv_snapshot_open(&s, snapshot_path));
    size_t n = s->n_note, n_refused = 0;
    uint8_t *note = malloc(n);
    assert_non_null(note);
    memcpy(note, s->note, n);
    kv_snapshot_close(s);
    for (size_t i = 1; i < n; i++) {
        assert_ok(kv_session_save(t.session, 0, snapshot_path, note, i));
        refuse(&t, "malformed", 2, n_tokens);
    }
    for (size_t i = 0; i < n; i++) {
        note[i] ^= 0x80;
        assert_ok(kv_session_save(t.session, 0, snapshot_path, note, n));
        if (kvant_chat_load(t.chat, snapshot_path)) n_refused++; /* else a letter of a message is another */
        note[i] ^= 0x80;
    }
    assert_true(n_refused > n / 2);
    free(note);
    close_talk(&t);
    kvant_model_close(model);
}

static void test_without_memory(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    talk t = open_talk(model, "chatml", 256), other = open_talk(model, "chatml", 256);
    say(&t, "hello");
    say(&other, "something else");
    int64_t n_tokens = kvant_seq_tokens(other.session, 0), n = 0;
    for (;; n++) {
        kv_alloc_fail_after(n);
        kvant_status status = kvant_chat_save(t.chat, snapshot_path);
        kv_alloc_fail_after(-1);
        if (!status) break;
        assert_status(status, KVANT_NO_MEMORY);
    }
    for (n = 0;; n++) {
        kv_alloc_fail_after(n);
        kvant_status status = kvant_chat_load(other.chat, snapshot_path);
        kv_alloc_fail_after(-1);
        if (!status) break;
        assert_status(status, KVANT_NO_MEMORY);
        assert_int_equal(kvant_chat_count(other.chat), 2);
        assert_int_equal(kvant_seq_tokens(other.session, 0), n_tokens);
    }
    check_same_messages(&t, &other);
    close_talk(&t);
    close_talk(&other);
    kvant_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_goes_on, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_refused, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_notes_that_make_no_sense, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_without_memory, open_folder, close_folder)};
    return cmocka_run_group_tests_name("saved conversations", tests, NULL, NULL);
}
