/* Laws of layers with a sliding window that keep only the window, a margin and the first positions: what they
 * have released is never missed, going back works as far as the margin reaches and is refused beyond it, and
 * nothing that fails in between has changed anything. The measure is the same session with layers that keep
 * everything. */
#include "small_session.h"

#include "base/memory.h"
#include "engine/engine.h"

enum { WINDOW = 32, MARGIN = 8, N_PIN = 2, N_BATCH = 16, N_CTX = 400 };

/* Sums over cells in another order. */
static const double F32_ERROR = 1e-4;

static const char *const types[] = {"f32", "q8_0", "q4_0"};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static kvant_session *open_windowed(kvant_model *model, const char *kv, int32_t margin, int32_t n_ctx,
                                    kvant_shift how) {
    kvant_session *session = NULL;
    kvant_session_options options = KVANT_SESSION_OPTIONS_INIT;
    options.n_ctx = n_ctx;
    options.n_batch = N_BATCH;
    options.n_sequences = 2;
    options.type_k = options.type_v = kv;
    options.act = KVANT_ACT_F32;
    options.window_margin = margin;
    options.n_pin = N_PIN;
    options.shift = how;
    assert_ok(kvant_session_create(&session, model, &options));
    return session;
}

static kvant_session *open_small(kvant_model *model, const char *kv) {
    return open_windowed(model, kv, MARGIN, N_CTX, KVANT_SHIFT_LAZY);
}

static kvant_session *open_whole(kvant_model *model, const char *kv) {
    return open_windowed(model, kv, -1, N_CTX, KVANT_SHIFT_LAZY);
}

/* In batches: an evaluation of several steps. */
static void eval_text(kvant_session *s, int32_t seq, int32_t first, int32_t n) {
    kvant_token tokens[N_CTX];
    for (int32_t i = 0; i < n; i++) tokens[i] = some_token(first + i);
    eval(s, seq, tokens, n);
}

static double error_of(const char *type) { return strcmp(type, "f32") ? 0.1 : F32_ERROR; }

static void check_near(const kvant_session *a, const kvant_session *b, int32_t n_vocab, const char *type,
                       const char *when) {
    double d = session_distance(a, b, n_vocab), allowed = error_of(type);
    if (!(d <= allowed)) fail_msg("%s, %s: %g from layers that keep all, allowed %g", type, when, d, allowed);
}

static int64_t window_bytes(const kvant_session *s, int32_t *n_cells) {
    kvant_session_info info = KVANT_SESSION_INFO_INIT;
    int64_t bytes = 0;
    kvant_session_get_info(s, &info);
    for (int32_t i = 0; i < info.n_kv_rows; i++) {
        kvant_kv_row row = KVANT_KV_ROW_INIT;
        assert_ok(kvant_session_kv_row(s, i, &row));
        if (row.window) bytes += row.bytes_total, *n_cells = row.n_cells;
    }
    return bytes;
}

static void test_memory_does_not_grow_with_the_context(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny-swa");
    int32_t small_cells = 0, large_cells = 0, whole_cells = 0;
    kvant_session *small = open_windowed(model, "f16", MARGIN, 400, KVANT_SHIFT_LAZY),
                  *large = open_windowed(model, "f16", MARGIN, 4000, KVANT_SHIFT_LAZY),
                  *whole = open_windowed(model, "f16", -1, 4000, KVANT_SHIFT_LAZY);
    assert_int_equal(window_bytes(small, &small_cells), window_bytes(large, &large_cells));
    assert_int_equal(small_cells, large_cells);
    assert_in_range(small_cells, WINDOW + MARGIN + N_PIN, 256);
    assert_true(window_bytes(whole, &whole_cells) > 10 * window_bytes(large, &large_cells));
    kvant_session_close(small);
    kvant_session_close(large);
    kvant_session_close(whole);
    kvant_model_close(model);
}

static void test_what_is_released_is_not_missed(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny-swa");
    int32_t n_vocab = n_vocab_of(model);
    for (size_t k = 0; k < COUNT(types); k++) {
        kvant_session *a = open_small(model, types[k]), *b = open_whole(model, types[k]);
        eval_text(a, 0, 0, 200);
        eval_text(b, 0, 0, 200);
        check_near(a, b, n_vocab, types[k], "after a long prompt");
        for (int32_t i = 200; i < 260; i++) {
            eval_some(a, 0, i, 1);
            eval_some(b, 0, i, 1);
            check_near(a, b, n_vocab, types[k], "token by token");
        }
        eval_text(a, 1, 500, 100); /* another sequence takes what was released */
        eval_text(b, 1, 500, 100);
        check_near(a, b, n_vocab, types[k], "in another sequence");
        eval_some(a, 0, 260, 1);
        eval_some(b, 0, 260, 1);
        check_near(a, b, n_vocab, types[k], "back in the first");
        kvant_session_close(a);
        kvant_session_close(b);
    }
    kvant_model_close(model);
}

/* Cells that hold no token hold NaN. */
static void test_nan_in_unused_cells(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny-swa");
    kvant_model_info info = KVANT_MODEL_INFO_INIT;
    kvant_model_get_info(model, &info);
    for (size_t k = 0; k < COUNT(types); k++) {
        kvant_session *clean = open_small(model, types[k]), *dirty = open_small(model, types[k]);
        for (int32_t i = 0; i < info.n_layers; i++) {
            kv_store *store = kv_cache_store(dirty->cache, i);
            memset(store->k.buffer->host, 0xff, store->k.buffer->bytes);
            memset(store->v.buffer->host, 0xff, store->v.buffer->bytes);
        }
        for (int32_t i = 0; i < 6; i++) {
            eval_text(clean, 0, 31 * i, 31);
            eval_text(dirty, 0, 31 * i, 31);
            assert_memory_equal(kvant_logits(clean, 0), kvant_logits(dirty, 0),
                                (size_t)info.n_vocab * sizeof(float));
        }
        kvant_session_close(clean);
        kvant_session_close(dirty);
    }
    kvant_model_close(model);
}

/* ---- going back */

static void test_rewind_within_the_margin(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny-swa");
    int32_t n_vocab = n_vocab_of(model);
    for (size_t k = 0; k < COUNT(types); k++) {
        kvant_session *a = open_small(model, types[k]), *b = open_whole(model, types[k]);
        eval_text(a, 0, 0, 150);
        eval_text(b, 0, 0, 150);
        assert_int_equal(kvant_seq_rewind(a, 0, 150 - MARGIN), 150 - MARGIN);
        assert_ok(kvant_seq_remove(a, 0, 150 - MARGIN, -1));
        assert_ok(kvant_seq_remove(b, 0, 150 - MARGIN, -1));
        eval_text(a, 0, 300, 40);
        eval_text(b, 0, 300, 40);
        check_near(a, b, n_vocab, types[k], "after going back");
        kvant_session_close(a);
        kvant_session_close(b);
    }
    kvant_model_close(model);
}

static void test_rewind_beyond_the_margin(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny-swa");
    int32_t n_vocab = n_vocab_of(model);
    kvant_session *a = open_small(model, "f32"), *b = open_whole(model, "f32");
    eval_text(a, 0, 0, 150);
    eval_text(b, 0, 0, 100);
    assert_status(kvant_seq_remove(a, 0, 100, -1), KVANT_UNSUPPORTED);
    assert_non_null(strstr(kvant_last_error(), "a window of 32 have released what is below 111"));
    assert_non_null(strstr(kvant_last_error(), "can be cut back to 142, or to 2"));
    assert_int_equal(kvant_seq_end(a, 0), 150);
    assert_int_equal(kvant_seq_rewind(a, 0, 142), 142);
    assert_int_equal(kvant_seq_rewind(a, 0, 141), N_PIN); /* all that is left in front */
    assert_int_equal(kvant_seq_rewind(a, 0, 100), N_PIN);
    assert_status(kvant_seq_fork(a, 1, 0, 0, 100), KVANT_UNSUPPORTED);
    assert_int_equal(kvant_seq_tokens(a, 1), 0);
    assert_ok(kvant_seq_remove(a, 0, N_PIN, -1));
    eval_text(a, 0, N_PIN, 98);
    check_near(a, b, n_vocab, "f32", "read again");
    kvant_session_close(a);
    kvant_session_close(b);
    kvant_model_close(model);
}

/* An evaluation that fails in its last step, after windows let go of what earlier steps appended. */
static void test_rollback(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny-swa");
    int32_t n_vocab = n_vocab_of(model), n_failed = 0;
    kvant_session *a = open_small(model, "q8_0"), *b = open_small(model, "q8_0");
    kvant_token tokens[N_CTX];
    for (int32_t i = 0; i < N_CTX; i++) tokens[i] = some_token(1000 + i);
    eval_text(a, 0, 0, 120);
    eval_text(b, 0, 0, 120);
    for (int32_t odd = 1; odd < N_BATCH; odd += 2) { /* a plan for a shape that was not there yet */
        for (int64_t n = 2; n < 400; n += 30) {
            kv_alloc_fail_after(n);
            kvant_status status = try_eval(a, 0, tokens, 6 * N_BATCH + odd);
            kv_alloc_fail_after(-1);
            assert_true(status == KVANT_OK || status == KVANT_NO_MEMORY);
            n_failed += status != KVANT_OK;
            if (!status) break;
            assert_int_equal(kvant_seq_end(a, 0), 120);
            assert_ok(kvant_seq_copy(a, 1, 0));
            assert_ok(kvant_seq_copy(b, 1, 0));
            assert_ok(kvant_seq_remove(a, 1, 120 - MARGIN, -1)); /* the margin is there too */
            assert_ok(kvant_seq_remove(b, 1, 120 - MARGIN, -1));
            eval_some(a, 1, 700, 2);
            eval_some(b, 1, 700, 2);
            assert_true(session_distance(a, b, n_vocab) <= F32_ERROR);
            assert_ok(kvant_seq_clear(a, 1));
            assert_ok(kvant_seq_clear(b, 1));
        }
        if (kvant_seq_end(a, 0) > 120) { /* it worked at last: start again */
            assert_ok(kvant_seq_clear(a, 0));
            eval_text(a, 0, 0, 120);
        }
    }
    assert_true(n_failed > 5);
    kvant_session_close(a);
    kvant_session_close(b);
    kvant_model_close(model);
}

/* ---- shifting */

/* Keep 4, drop half of the rest whenever 200 are in, as generation does: lazily and eagerly. */
static void test_shifts(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny-swa");
    int32_t n_vocab = n_vocab_of(model);
    for (size_t k = 0; k < COUNT(types); k++)
        for (int how = KVANT_SHIFT_LAZY; how <= KVANT_SHIFT_EAGER; how++) {
            kvant_session *a = open_windowed(model, types[k], MARGIN, N_CTX, (kvant_shift)how),
                          *b = open_windowed(model, types[k], -1, N_CTX, (kvant_shift)how);
            for (int32_t i = 0; i < 12; i++) {
                eval_text(a, 0, 50 * i, 50);
                eval_text(b, 0, 50 * i, 50);
                check_near(a, b, n_vocab, types[k], how ? "eager" : "lazy");
                if (kvant_seq_end(a, 0) < 200) continue;
                assert_ok(kvant_seq_drop(a, 0, 4, 102));
                assert_ok(kvant_seq_drop(b, 0, 4, 102));
            }
            kvant_session_close(a);
            kvant_session_close(b);
        }
    kvant_model_close(model);
}

/* What would bring released positions into the window is refused; nothing has changed. */
static void test_shifts_that_are_refused(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny-swa");
    int32_t n_vocab = n_vocab_of(model);
    for (int how = KVANT_SHIFT_LAZY; how <= KVANT_SHIFT_EAGER; how++) {
        kvant_session *a = open_windowed(model, "q8_0", MARGIN, N_CTX, (kvant_shift)how),
                      *b = open_windowed(model, "q8_0", MARGIN, N_CTX, (kvant_shift)how);
        eval_text(a, 0, 0, 150);
        eval_text(b, 0, 0, 150);
        assert_status(kvant_seq_drop(a, 0, 120, 120 + MARGIN + 1), KVANT_UNSUPPORTED);
        assert_status(kvant_seq_drop(a, 0, 4, 130), KVANT_UNSUPPORTED); /* 20 tokens behind the first four */
        assert_status(kvant_seq_divide(a, 0, 0, -1, 2), KVANT_UNSUPPORTED);
        assert_int_equal(kvant_seq_end(a, 0), 150);
        eval_some(a, 0, 150, 1);
        eval_some(b, 0, 150, 1);
        assert_memory_equal(kvant_logits(a, 0), kvant_logits(b, 0), (size_t)n_vocab * sizeof(float));
        assert_ok(kvant_seq_drop(a, 0, 122, 122 + MARGIN)); /* as far as the margin goes */
        kvant_session_close(a);
        kvant_session_close(b);
    }
    kvant_model_close(model);
}

static void test_keep_and_fork(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny-swa");
    int32_t n_vocab = n_vocab_of(model);
    kvant_session *a = open_small(model, "f32"), *b = open_whole(model, "f32");
    kvant_session *both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        eval_text(both[i], 0, 0, 150);
        assert_ok(kvant_seq_fork(both[i], 1, 0, 105, 145)); /* from the middle: without its beginning */
        assert_int_equal(kvant_seq_begin(both[i], 1), 105);
        assert_int_equal(kvant_seq_end(both[i], 1), 145);
        assert_int_equal(kvant_seq_tokens(both[i], 1), 40);
        eval_text(both[i], 1, 400, 20);
    }
    check_near(a, b, n_vocab, "f32", "after a fork");
    for (int i = 0; i < 2; i++) {
        assert_ok(kvant_seq_keep(both[i], 1));
        assert_int_equal(kvant_seq_tokens(both[i], 0), 0);
        eval_text(both[i], 1, 420, 50);
    }
    check_near(a, b, n_vocab, "f32", "after a keep");
    kvant_session_close(a);
    kvant_session_close(b);
    kvant_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_does_not_grow_with_the_context),
        cmocka_unit_test(test_what_is_released_is_not_missed),
        cmocka_unit_test(test_nan_in_unused_cells),
        cmocka_unit_test(test_rewind_within_the_margin),
        cmocka_unit_test(test_rewind_beyond_the_margin),
        cmocka_unit_test(test_rollback),
        cmocka_unit_test(test_shifts),
        cmocka_unit_test(test_shifts_that_are_refused),
        cmocka_unit_test(test_keep_and_fork),
    };
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
