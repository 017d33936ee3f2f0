/* Sessions through the public API: what creation accepts, evaluation in chunks and batches, failures that
 * leave the sequences as they were, cache operations on ids and ranges out of order, older and newer structs.
 */
#include "small_session.h"

enum { N_CTX = 64 };

static kvant_model *model;

static int open_model(void **state) {
    (void)state;
    model = open_small_model("tiny4");
    return 0;
}

static int close_model(void **state) {
    (void)state;
    kvant_model_close(model);
    return 0;
}

static void test_creation(void **state) {
    (void)state;
    kvant_session *s = NULL;
    static const struct {
        int32_t n_ctx, n_batch, n_sequences;
        const char *k;
        int act;
    } wrong[] = {{-1, 0, 0, NULL, 0},         {INT32_MAX, 0, 0, NULL, 0}, {64, -1, 0, NULL, 0},
                 {64, INT32_MAX, 0, NULL, 0}, {64, 0, -1, NULL, 0},       {64, 0, INT32_MAX, NULL, 0},
                 {64, 0, 0, "q5_9", 0},       {64, 0, 0, "", 0},          {64, 0, 0, NULL, 2},
                 {64, 0, 0, NULL, -1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
        o.n_ctx = wrong[i].n_ctx;
        o.n_batch = wrong[i].n_batch;
        o.n_sequences = wrong[i].n_sequences;
        o.type_k = wrong[i].k;
        o.act = (kvant_act)wrong[i].act;
        assert_status(kvant_session_create(&s, model, &o), KVANT_INVALID);
        assert_true(strlen(kvant_last_error()) > 10);
        assert_null(s);
    }
    assert_status(kvant_session_create(&s, NULL, NULL), KVANT_INVALID);
    assert_status(kvant_session_create(NULL, model, NULL), KVANT_INVALID);
    assert_ok(kvant_session_create(&s, model, NULL)); /* all defaults */
    kvant_session_info info = KVANT_SESSION_INFO_INIT;
    kvant_session_get_info(s, &info);
    assert_int_equal(info.n_sequences, 1);
    assert_int_equal(info.n_ctx, 512); /* the model's own */
    assert_int_equal(info.kv_bytes_used, 0);
    kvant_session_close(s);
    kvant_session_close(NULL);
}

static void test_figures(void **state) {
    (void)state;
    kvant_session *s = open_session(model, "q8_0", N_CTX, 2);
    kvant_session_info info = KVANT_SESSION_INFO_INIT;
    kvant_kv_row row = KVANT_KV_ROW_INIT;
    eval_some(s, 0, 0, 10);
    assert_ok(kvant_seq_copy(s, 1, 0)); /* shared: counted once */
    kvant_session_get_info(s, &info);
    assert_int_equal(info.kv_bytes_per_token, 4 * 2 * 2 * 34); /* layers, K and V, heads of one block */
    assert_int_equal(info.kv_bytes_used, 10 * info.kv_bytes_per_token);
    assert_int_equal(info.kv_bytes_total, N_CTX * info.kv_bytes_per_token);
    assert_int_equal(info.n_kv_rows, 1);
    assert_ok(kvant_session_kv_row(s, 0, &row));
    assert_string_equal(row.type_k, "q8_0");
    assert_int_equal(row.bytes_per_token, info.kv_bytes_per_token);
    assert_status(kvant_session_kv_row(s, 1, &row), KVANT_INVALID);
    assert_status(kvant_session_kv_row(s, -1, &row), KVANT_INVALID);
    kvant_session_close(s);
}

/* The same logits however a prompt is cut: into calls, into batches, beside other sequences. */
static void test_batches(void **state) {
    (void)state;
    enum { N = 50 };
    int32_t n_vocab = n_vocab_of(model);
    kvant_token tokens[N];
    for (int32_t i = 0; i < N; i++) tokens[i] = some_token(i);
    kvant_session *whole = open_session(model, "f32", N, 1);
    assert_ok(kvant_eval(whole, &(kvant_chunk){0, tokens, N, KVANT_LOGITS_ALL}, 1));
    assert_int_equal(kvant_n_logits(whole), N);
    assert_null(kvant_logits(whole, N));
    assert_null(kvant_logits(whole, -1));
    for (int32_t n_batch = 1; n_batch < N; n_batch += 6) {
        kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
        kvant_session *s = NULL;
        o.n_ctx = 3 * N;
        o.n_batch = n_batch;
        o.n_sequences = 3;
        o.type_k = o.type_v = "f32";
        o.act = KVANT_ACT_F32;
        assert_ok(kvant_session_create(&s, model, &o));
        kvant_chunk chunks[] = {{2, tokens, N - 7, KVANT_LOGITS_NONE},
                                {0, tokens, N, KVANT_LOGITS_ALL},
                                {1, tokens, 5, KVANT_LOGITS_LAST}};
        assert_ok(kvant_eval(s, chunks, 3));
        assert_int_equal(kvant_n_logits(s), N + 1);
        for (int32_t i = 0; i < N; i++)
            assert_true(logit_distance(kvant_logits(s, i), kvant_logits(whole, i), n_vocab) < 1e-4);
        assert_true(logit_distance(kvant_logits(s, N), kvant_logits(whole, 4), n_vocab) < 1e-4);
        assert_ok(kvant_eval(s, &(kvant_chunk){2, tokens + N - 7, 7, KVANT_LOGITS_LAST}, 1));
        assert_true(logit_distance(kvant_logits(s, 0), kvant_logits(whole, N - 1), n_vocab) < 1e-4);
        kvant_session_close(s);
    }
    kvant_session_close(whole);
}

/* Sequence 0 goes on as if the failure had not been. */
static void check_unharmed(kvant_session *s, int64_t n_0, int64_t n_1) {
    kvant_session *fresh = open_session(model, "f32", N_CTX, 1);
    assert_int_equal(kvant_seq_tokens(s, 0), n_0);
    assert_int_equal(kvant_seq_tokens(s, 1), n_1);
    eval_some(fresh, 0, 0, (int32_t)n_0 + 1);
    eval_some(s, 0, (int32_t)n_0, 1);
    assert_true(session_distance(s, fresh, n_vocab_of(model)) < 1e-4);
    assert_ok(kvant_seq_remove(s, 0, n_0, -1));
    kvant_session_close(fresh);
}

static void test_failures_change_nothing(void **state) {
    (void)state;
    kvant_session *s = open_session(model, "f32", N_CTX, 3);
    kvant_token tokens[N_CTX + 1];
    for (int32_t i = 0; i <= N_CTX; i++) tokens[i] = some_token(i);
    eval_some(s, 0, 0, 20);
    eval_some(s, 1, 0, 10);
    int32_t room = N_CTX - 30;
    assert_status(try_eval(s, 0, tokens, room + 1), KVANT_CONTEXT_FULL);
    assert_non_null(strstr(kvant_last_error(), "35 tokens to add, room for 34 of 64"));
    check_unharmed(s, 20, 10);
    kvant_chunk two[] = {{0, tokens, room, KVANT_LOGITS_ALL}, {1, tokens, 1, KVANT_LOGITS_LAST}};
    assert_status(kvant_eval(s, two, 2), KVANT_CONTEXT_FULL); /* together too many */
    two[1].sequence = 0;
    assert_status(kvant_eval(s, two, 2), KVANT_INVALID); /* twice the same */
    two[1] = (kvant_chunk){3, tokens, 1, KVANT_LOGITS_LAST};
    assert_status(kvant_eval(s, two, 2), KVANT_INVALID);
    two[1] = (kvant_chunk){1, tokens, 0, KVANT_LOGITS_LAST};
    assert_status(kvant_eval(s, two, 2), KVANT_INVALID);
    two[1] = (kvant_chunk){1, NULL, 1, KVANT_LOGITS_LAST};
    assert_status(kvant_eval(s, two, 2), KVANT_INVALID);
    assert_status(kvant_eval(s, two, 0), KVANT_INVALID);
    assert_status(kvant_eval(s, two, -1), KVANT_INVALID);
    kvant_token foreign = n_vocab_of(model);
    assert_status(try_eval(s, 0, &foreign, 1), KVANT_INVALID);
    foreign = -1;
    assert_status(try_eval(s, 0, &foreign, 1), KVANT_INVALID);
    kvant_session_cancel(s);
    assert_status(try_eval(s, 0, tokens, 5), KVANT_CANCELLED);
    kvant_session_resume(s);
    check_unharmed(s, 20, 10);
    assert_ok(try_eval(s, 2, tokens, room)); /* exactly what is free */
    assert_status(try_eval(s, 2, tokens, 1), KVANT_CONTEXT_FULL);
    assert_ok(kvant_seq_clear(s, 2));
    check_unharmed(s, 20, 10);
    kvant_session_close(s);
}

static void test_ids_and_ranges(void **state) {
    (void)state;
    kvant_session *s = open_session(model, "f32", N_CTX, 2);
    const char *reason = NULL;
    eval_some(s, 0, 0, 20);
    static const int32_t wrong[] = {-1, 2, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        assert_status(kvant_seq_remove(s, wrong[i], 0, -1), KVANT_INVALID);
        assert_status(kvant_seq_drop(s, wrong[i], 0, -1), KVANT_INVALID);
        assert_status(kvant_seq_shift(s, wrong[i], 0, -1, 1), KVANT_INVALID);
        assert_status(kvant_seq_clear(s, wrong[i]), KVANT_INVALID);
        assert_status(kvant_seq_copy(s, wrong[i], 0), KVANT_INVALID);
        assert_status(kvant_seq_copy(s, 0, wrong[i]), KVANT_INVALID);
        assert_int_equal(kvant_seq_end(s, wrong[i]), 0);
        assert_int_equal(kvant_seq_tokens(s, wrong[i]), 0);
    }
    static const int64_t amounts[] = {INT64_MAX, INT64_MIN, -6, -21,
                                      1}; /* of tokens 5 to 9: all in the way */
    for (size_t i = 0; i < 5; i++) assert_status(kvant_seq_shift(s, 0, 5, 10, amounts[i]), KVANT_INVALID);
    assert_status(kvant_seq_remove(s, 0, -1, 5), KVANT_INVALID);
    assert_status(kvant_seq_drop(s, 0, 9, 5), KVANT_INVALID);
    assert_ok(kvant_seq_remove(s, 0, 20, INT64_MAX)); /* nothing there */
    assert_ok(kvant_seq_drop(s, 0, 30, 40));
    assert_ok(kvant_seq_shift(s, 0, 25, -1, -25));
    assert_ok(kvant_seq_copy(s, 0, 0));
    check_unharmed(s, 20, 0);
    assert_ok(kvant_seq_remove(s, 0, 3, 6)); /* a hole: fewer tokens, the same end */
    assert_int_equal(kvant_seq_tokens(s, 0), 17);
    assert_int_equal(kvant_seq_end(s, 0), 20);
    assert_true(kvant_can_shift(s, NULL));
    assert_true(kvant_can_shift(s, &reason));
    assert_non_null(reason);
    kvant_session_close(s);
}

static void test_struct_sizes(void **state) {
    (void)state;
    kvant_session *s = NULL;
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.size = offsetof(kvant_session_options, n_sequences); /* an older caller */
    o.n_ctx = 32;
    o.n_sequences = -77;
    o.type_k = (const char *)1;
    assert_ok(kvant_session_create(&s, model, &o));
    struct {
        kvant_session_info known;
        char later[32];
    } info;
    memset(&info, 0x55, sizeof info);
    info.known.size = sizeof info;
    kvant_session_get_info(s, &info.known);
    assert_int_equal(info.known.n_ctx, 32);
    assert_int_equal(info.known.n_sequences, 1);
    assert_int_equal(info.later[0], 0x55);
    info.known = (kvant_session_info){.size = offsetof(kvant_session_info, n_batch), .n_batch = 99};
    kvant_session_get_info(s, &info.known);
    assert_int_equal(info.known.n_ctx, 32);
    assert_int_equal(info.known.n_batch, 99);
    kvant_session_close(s);
    o.size = 0;
    assert_status(kvant_session_create(&s, model, &o), KVANT_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_creation),       cmocka_unit_test(test_figures),
        cmocka_unit_test(test_batches),        cmocka_unit_test(test_failures_change_nothing),
        cmocka_unit_test(test_ids_and_ranges), cmocka_unit_test(test_struct_sizes),
    };
    return cmocka_run_group_tests_name("session", tests, open_model, close_model);
}
