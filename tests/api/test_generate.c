/* kvant_generate through the public API: exact numbers of tokens for every budget and policy, prompts around
 * the size of the context, stop strings, cancelling, seeds. The model is small and never ends by itself. */
#define _GNU_SOURCE
#include "small_session.h"

enum { N_CTX = 64 };

typedef struct bench {
    kvant_model *model;
    kvant_session *session;
    kvant_sampler *sampler;
} bench;

static bench open_bench(int32_t n_ctx, float temperature) {
    bench b = {.model = open_small_model("tiny1")};
    kvant_sampler_options options = KVANT_SAMPLER_OPTIONS_INIT;
    options.temperature = temperature;
    options.seed = 17;
    b.session = open_session(b.model, "f16", n_ctx, 2);
    assert_ok(kvant_sampler_create(&b.sampler, b.model, &options));
    return b;
}

static void close_bench(bench *b) {
    kvant_sampler_close(b->sampler);
    kvant_session_close(b->session);
    kvant_model_close(b->model);
}

static const kvant_generate_options shift_options = {
    .size = sizeof(kvant_generate_options), .ignore_end = true, .context = KVANT_CONTEXT_SHIFT};
static const kvant_generate_options stop_options = {
    .size = sizeof(kvant_generate_options), .ignore_end = true, .context = KVANT_CONTEXT_STOP};

/* From an empty sequence 0, with the first n tokens of the fixed text as the prompt. */
static kvant_status generate(bench *b, int32_t n_prompt, const kvant_generate_options *options,
                             kvant_generate_result *result) {
    kvant_token prompt[1024];
    for (int32_t i = 0; i < n_prompt; i++) prompt[i] = some_token(i);
    assert_ok(kvant_seq_clear(b->session, 0));
    kvant_sampler_reset(b->sampler);
    *result = (kvant_generate_result)KVANT_GENERATE_RESULT_INIT;
    return kvant_generate(b->session, 0, b->sampler, prompt, (size_t)n_prompt, options, result);
}

static void check(bench *b, int32_t n_prompt, kvant_generate_options options, kvant_finish finish,
                  int32_t n_generated) {
    kvant_generate_result r;
    assert_ok(generate(b, n_prompt, &options, &r));
    assert_int_equal(r.finish, finish);
    assert_int_equal(r.n_generated, n_generated);
    assert_int_equal(r.n_prompt, n_prompt);
    assert_true(options.context == KVANT_CONTEXT_SHIFT || r.n_shifts == 0);
    if (!r.n_shifts)
        assert_int_equal(kvant_seq_tokens(b->session, 0), n_prompt + n_generated - (n_generated > 0));
}

static void test_budgets(void **state) {
    (void)state;
    bench b = open_bench(N_CTX, 0);
    kvant_generate_options shift = shift_options, stop = stop_options;
    shift.max_tokens = 500; /* far beyond the context */
    check(&b, 10, shift, KVANT_FINISH_LENGTH, 500);
    shift.max_tokens = 0; /* the cap that is always there */
    check(&b, 10, shift, KVANT_FINISH_LENGTH, N_CTX);
    check(&b, 10, stop, KVANT_FINISH_CONTEXT, N_CTX - 10); /* until full, exactly */
    stop.max_tokens = 500;
    check(&b, 10, stop, KVANT_FINISH_CONTEXT, N_CTX - 10);
    for (int32_t n = 1; n <= 3; n++) {
        stop.max_tokens = shift.max_tokens = n;
        check(&b, 10, stop, KVANT_FINISH_LENGTH, n);
        check(&b, 10, shift, KVANT_FINISH_LENGTH, n);
    }
    stop.max_tokens = N_CTX - 10;
    check(&b, 10, stop, KVANT_FINISH_LENGTH, N_CTX - 10);
    close_bench(&b);
}

static void test_prompts_around_the_context(void **state) {
    (void)state;
    bench b = open_bench(N_CTX, 0);
    kvant_generate_options shift = shift_options;
    kvant_generate_result r;
    shift.max_tokens = 100;
    check(&b, N_CTX - 1, stop_options, KVANT_FINISH_CONTEXT, 1);
    check(&b, N_CTX, stop_options, KVANT_FINISH_CONTEXT, 0);
    check(&b, N_CTX - 1, shift, KVANT_FINISH_LENGTH, 100); /* n_keep 0 */
    check(&b, N_CTX, shift, KVANT_FINISH_LENGTH, 100);
    static const int32_t too_long[] = {N_CTX + 1, 10 * N_CTX};
    for (int i = 0; i < 2; i++) {
        for (int policy = 0; policy < 2; policy++) {
            char expected[80];
            assert_status(generate(&b, too_long[i], policy ? &shift : &stop_options, &r), KVANT_CONTEXT_FULL);
            snprintf(expected, sizeof expected, "prompt has %d tokens", too_long[i]);
            assert_non_null(strstr(kvant_last_error(), expected));
            assert_non_null(strstr(kvant_last_error(), "of 64"));
            assert_int_equal(kvant_seq_tokens(b.session, 0), 0);
        }
    }
    assert_status(generate(&b, 0, &stop_options, &r), KVANT_INVALID);
    assert_non_null(strstr(kvant_last_error(), "empty"));
    check(&b, 10, shift, KVANT_FINISH_LENGTH, 100); /* as if nothing had been */
    close_bench(&b);
}

static void test_n_keep(void **state) {
    (void)state;
    bench b = open_bench(N_CTX, 0);
    kvant_generate_options shift = shift_options;
    kvant_generate_result r;
    shift.max_tokens = 200;
    static const int32_t wrong[] = {N_CTX, N_CTX + 1, INT32_MAX, -2, INT32_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        shift.n_keep = wrong[i];
        assert_status(generate(&b, 10, &shift, &r), KVANT_INVALID);
        assert_non_null(strstr(kvant_last_error(), "n_keep"));
        assert_int_equal(kvant_seq_tokens(b.session, 0), 0);
    }
    static const int32_t right[] = {-1, 0, 1, 10, 40, N_CTX - 2, N_CTX - 1};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        shift.n_keep = right[i];
        check(&b, 10, shift, KVANT_FINISH_LENGTH, 200);
        assert_in_range(kvant_seq_tokens(b.session, 0), 1, N_CTX);
    }
    shift.n_keep = -1; /* the prompt fills all there is: nothing may go */
    check(&b, N_CTX, shift, KVANT_FINISH_CONTEXT, 1);
    check(&b, N_CTX - 1, shift, KVANT_FINISH_LENGTH, 200);
    close_bench(&b);
}

/* The shift drops what the policy says: keep n, the older half of the rest. */
static void test_what_a_shift_drops(void **state) {
    (void)state;
    bench b = open_bench(N_CTX, 0);
    kvant_generate_options shift = shift_options;
    kvant_generate_result r;
    shift.n_keep = 4;
    shift.max_tokens = N_CTX - 10 + 2; /* one more than there are cells */
    assert_ok(generate(&b, 10, &shift, &r));
    assert_int_equal(r.n_shifts, 1);
    assert_int_equal(kvant_seq_tokens(b.session, 0), 4 + 30 + 1);
    assert_int_equal(kvant_seq_end(b.session, 0), 4 + 30 + 1);
    close_bench(&b);
}

/* Cells that another sequence shares are not freed by dropping them here. */
static void test_shared_cells(void **state) {
    (void)state;
    bench b = open_bench(N_CTX, 0);
    kvant_generate_options shift = shift_options;
    kvant_generate_result r;
    kvant_token token = some_token(0);
    shift.max_tokens = 100;
    assert_ok(generate(&b, 40, &stop_options, &r));
    assert_ok(kvant_seq_remove(b.session, 0, 60, -1));
    assert_ok(kvant_seq_copy(b.session, 1, 0)); /* 60 cells held twice, 4 free */
    assert_ok(kvant_generate(b.session, 0, b.sampler, &token, 1, &shift, &r));
    assert_int_equal(r.finish, KVANT_FINISH_LENGTH);
    assert_int_equal(r.n_generated, 100);
    assert_int_equal(kvant_seq_tokens(b.session, 1), 60);
    assert_in_range(kvant_seq_tokens(b.session, 0), 1, 4);
    close_bench(&b);
}

/* ---- text ---- */

typedef struct text {
    char at[4096];
    size_t n;
    int32_t n_calls, stop_at, cancel_at;
    kvant_session *session;
} text;

static bool collect(void *user, const char *bytes, size_t n) {
    text *t = user;
    assert_true(n > 0 && t->n + n < sizeof t->at);
    memcpy(t->at + t->n, bytes, n);
    t->n += n;
    t->at[t->n] = 0;
    if (++t->n_calls == t->cancel_at) kvant_session_cancel(t->session);
    return t->n_calls != t->stop_at;
}

static kvant_generate_options with_text(text *t, const char *const *stop, int32_t n_stop) {
    kvant_generate_options options = shift_options;
    options.max_tokens = 60;
    options.text = collect;
    options.user = t;
    options.stop = stop;
    options.n_stop = n_stop;
    return options;
}

/* Every piece of the text, of every length that spans up to several tokens, as a stop string. */
static void test_stop_strings(void **state) {
    (void)state;
    bench b = open_bench(N_CTX, 0.7f);
    static text whole, cut;
    kvant_generate_result r;
    whole = (text){.n = 0};
    kvant_generate_options options = with_text(&whole, NULL, 0);
    assert_ok(generate(&b, 10, &options, &r));
    assert_int_equal(r.n_generated, 60);
    for (size_t at = 0; at + 12 < whole.n; at += 7) {
        for (size_t n = 1; n <= 12; n += 5) {
            char stop[16];
            snprintf(stop, sizeof stop, "%.*s", (int)n, whole.at + at);
            if (strlen(stop) != n) continue; /* a NUL in the text */
            const char *stops[] = {"", "not in there", stop};
            cut = (text){.n = 0};
            options = with_text(&cut, stops, 3);
            assert_ok(generate(&b, 10, &options, &r));
            assert_int_equal(r.finish, KVANT_FINISH_STOPPED);
            assert_int_equal(cut.n, (const char *)memmem(whole.at, whole.n, stop, n) - whole.at);
            assert_memory_equal(cut.at, whole.at, cut.n);
        }
    }
    close_bench(&b);
}

static void test_callback_stops_and_cancels(void **state) {
    (void)state;
    bench b = open_bench(N_CTX, 0);
    kvant_generate_result r;
    static text t;
    for (int32_t at = 1; at < 4; at++) {
        t = (text){.stop_at = at};
        kvant_generate_options options = with_text(&t, NULL, 0);
        assert_ok(generate(&b, 10, &options, &r));
        assert_int_equal(r.finish, KVANT_FINISH_STOPPED);
        assert_int_equal(t.n_calls, at); /* once it has said no it is left alone */
        t = (text){.cancel_at = at, .session = b.session};
        options = with_text(&t, NULL, 0);
        assert_status(generate(&b, 10, &options, &r), KVANT_CANCELLED);
        assert_int_equal(r.finish, KVANT_FINISH_CANCELLED);
        assert_in_range(r.n_generated, at, 30);
        assert_int_equal(kvant_seq_tokens(b.session, 0), 10 + r.n_generated - 1);
        assert_status(generate(&b, 10, &options, &r), KVANT_CANCELLED); /* until it is resumed */
        assert_int_equal(kvant_seq_tokens(b.session, 0), 0);
        kvant_session_resume(b.session);
    }
    close_bench(&b);
}

static void test_seeds(void **state) {
    (void)state;
    static text first, again;
    kvant_generate_result r;
    for (int round = 0; round < 3; round++) {
        bench b = open_bench(N_CTX, 1.5f);
        again = (text){.n = 0};
        kvant_generate_options options = with_text(&again, NULL, 0);
        assert_ok(generate(&b, 10, &options, &r));
        if (!round) first = again;
        assert_string_equal(first.at, again.at);
        again.n = 0;
        assert_ok(generate(&b, 10, &options, &r)); /* the sampler was reset */
        assert_string_equal(first.at, again.at);
        close_bench(&b);
    }
}

/* ---- wrong use, older and newer callers ---- */

static void test_wrong_use(void **state) {
    (void)state;
    bench b = open_bench(N_CTX, 0);
    kvant_token token = some_token(0), foreign[] = {-1, n_vocab_of(b.model), INT32_MAX};
    kvant_generate_options o = stop_options;
    for (int i = 0; i < 3; i++)
        assert_status(kvant_generate(b.session, 0, b.sampler, &foreign[i], 1, &o, NULL), KVANT_INVALID);
    assert_status(kvant_generate(b.session, 2, b.sampler, &token, 1, &o, NULL), KVANT_INVALID);
    assert_status(kvant_generate(b.session, -1, b.sampler, &token, 1, &o, NULL), KVANT_INVALID);
    assert_status(kvant_generate(b.session, 0, NULL, &token, 1, &o, NULL), KVANT_INVALID);
    assert_status(kvant_generate(b.session, 0, b.sampler, NULL, 1, &o, NULL), KVANT_INVALID);
    o.max_tokens = -1;
    assert_status(kvant_generate(b.session, 0, b.sampler, &token, 1, &o, NULL), KVANT_INVALID);
    o = stop_options;
    o.context = (kvant_context_policy)3;
    assert_status(kvant_generate(b.session, 0, b.sampler, &token, 1, &o, NULL), KVANT_INVALID);
    o = stop_options;
    o.n_stop = 1; /* and no list */
    assert_status(kvant_generate(b.session, 0, b.sampler, &token, 1, &o, NULL), KVANT_INVALID);
    assert_int_equal(kvant_seq_tokens(b.session, 0), 0);
    close_bench(&b);
}

static void test_struct_sizes(void **state) {
    (void)state;
    bench b = open_bench(N_CTX, 0);
    kvant_token token = some_token(0);
    struct {
        kvant_generate_options known;
        char later[64];
    } newer = {stop_options, {0}};
    newer.known.size = sizeof newer; /* a caller of a later version */
    newer.known.max_tokens = 3;
    memset(newer.later, 0x7f, sizeof newer.later);
    struct {
        kvant_generate_result known;
        char later[64];
    } result;
    memset(&result, 0x7f, sizeof result);
    result.known.size = sizeof result;
    assert_ok(kvant_generate(b.session, 0, b.sampler, &token, 1, &newer.known, &result.known));
    assert_int_equal(result.known.n_generated, 3);
    assert_int_equal(result.known.size, sizeof result); /* its own */
    assert_int_equal(result.later[0], 0x7f);            /* and nothing behind what is known */

    kvant_generate_options older = stop_options; /* knows max_tokens and ignore_end, no policy */
    kvant_generate_result short_result = {.size = offsetof(kvant_generate_result, n_shifts), .n_shifts = 99};
    older.size = offsetof(kvant_generate_options, context);
    older.context = (kvant_context_policy)77;
    older.max_tokens = 2;
    assert_ok(kvant_generate(b.session, 0, b.sampler, &token, 1, &older, &short_result));
    assert_int_equal(short_result.n_generated, 2);
    assert_int_equal(short_result.n_shifts, 99);
    older.size = 3; /* no _INIT */
    assert_status(kvant_generate(b.session, 0, b.sampler, &token, 1, &older, NULL), KVANT_INVALID);
    assert_non_null(strstr(kvant_last_error(), "kvant_generate_options.size"));
    assert_ok(kvant_generate(b.session, 1, b.sampler, &token, 1, NULL, NULL)); /* all defaults */
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_prompts_around_the_context),
        cmocka_unit_test(test_n_keep),
        cmocka_unit_test(test_what_a_shift_drops),
        cmocka_unit_test(test_shared_cells),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_callback_stops_and_cancels),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_struct_sizes),
    };
    return cmocka_run_group_tests_name("generate", tests, NULL, NULL);
}
