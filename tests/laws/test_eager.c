/* Laws of the eager shift, of compact and of divided positions, on small models with everything but the cache
 * in f32. With one layer a shifted cache must equal the evaluation of the kept tokens alone; with more, the
 * same operations on an f32 cache are the measure. err(T) is the largest logit error that a cache of type T
 * makes without any shift. */
#include "small_session.h"

#include "base/memory.h"
#include "engine/engine.h"

enum { N_CTX = 96 };

static const double F32_ERROR = 1e-4; /* sums of floats in another order */

static const char *const one_layer[] = {"tiny1", "llama-yarn", "llama-linear", "llama-nemo", "phi3"};
static const char *const all_models[] = {"tiny1",      "tiny4",          "tiny-swa",    "tiny-out",
                                         "llama-yarn", "llama3-factors", "gemma3-keys", "gemma2",
                                         "phi3",       "phi3-long",      "qwen3-yarn"};
static const char *const shift_types[] = {"f32", "f16", "q8_0", "q4_0"};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static kvant_session *open_shifting(kvant_model *model, const char *kv, kvant_shift how,
                                    int32_t n_sequences) {
    kvant_session *session = NULL;
    kvant_session_options options = KVANT_SESSION_OPTIONS_INIT;
    options.n_ctx = N_CTX;
    options.n_sequences = n_sequences;
    options.type_k = options.type_v = kv;
    options.act = KVANT_ACT_F32;
    options.shift = how;
    assert_ok(kvant_session_create(&session, model, &options));
    return session;
}

static double type_error(kvant_model *model, const char *type) {
    kvant_session *a = open_shifting(model, "f32", KVANT_SHIFT_LAZY, 1),
                  *b = open_shifting(model, type, KVANT_SHIFT_LAZY, 1);
    double most = F32_ERROR / 2;
    for (int32_t i = 0; i < 60; i++) {
        eval_some(a, 0, i, 1);
        eval_some(b, 0, i, 1);
        most = fmax(most, session_distance(a, b, n_vocab_of(model)));
    }
    kvant_session_close(a);
    kvant_session_close(b);
    return most;
}

static int32_t frames_of(const kvant_session *s, int32_t seq) { return kv_cache_frames(s->cache, seq); }

/* ---- one layer: what a prefill of the kept tokens gives */

typedef struct text {
    int32_t at[N_CTX], n;
} text;

static void push_some(kvant_session *s, text *t, int32_t first, int32_t n) {
    eval_some(s, 0, first, n);
    for (int32_t i = 0; i < n; i++) t->at[t->n++] = first + i;
}

static void drop(kvant_session *s, text *t, int32_t p0, int32_t p1) {
    assert_ok(kvant_seq_drop(s, 0, p0, p1));
    memmove(t->at + p0, t->at + p1, (size_t)(t->n - p1) * sizeof *t->at);
    t->n -= p1 - p0;
}

static double distance_from_prefill(kvant_model *model, kvant_session *s, const text *t) {
    kvant_session *fresh = open_shifting(model, "f32", KVANT_SHIFT_LAZY, 1);
    kvant_token tokens[N_CTX];
    for (int32_t i = 0; i < t->n; i++) tokens[i] = some_token(t->at[i]);
    eval(fresh, 0, tokens, t->n);
    double d = session_distance(s, fresh, n_vocab_of(model));
    kvant_session_close(fresh);
    return d;
}

/* `compact`: lazy, and then all in one frame. A second coding may cost what the first one did. */
static void check_drop_is_prefill(const char *name, const char *type, bool compact) {
    kvant_model *model = open_small_model(name);
    kvant_session *s = open_shifting(model, type, compact ? KVANT_SHIFT_LAZY : KVANT_SHIFT_EAGER, 1);
    double allowed = 3 * type_error(model, type);
    text t = {.n = 0};
    push_some(s, &t, 0, 80);
    drop(s, &t, 5, 47);
    if (compact) assert_int_equal(frames_of(s, 0), 2);
    if (compact) assert_ok(kvant_seq_compact(s, 0));
    assert_int_equal(frames_of(s, 0), 1);
    push_some(s, &t, 100, 1);
    double d = distance_from_prefill(model, s, &t);
    push_some(s, &t, 101, 20);
    drop(s, &t, 0, 3);
    if (compact) assert_ok(kvant_seq_compact(s, 0));
    push_some(s, &t, 130, 4);
    d = fmax(d, distance_from_prefill(model, s, &t));
    if (!(d <= allowed)) fail_msg("%s, %s: %g from a prefill, allowed %g", name, type, d, allowed);
    kvant_session_close(s);
    kvant_model_close(model);
}

static void test_one_layer_drop_is_prefill(void **state) {
    (void)state;
    for (size_t m = 0; m < COUNT(one_layer); m++)
        for (size_t k = 0; k < COUNT(shift_types); k++)
            for (int compact = 0; compact < 2; compact++)
                check_drop_is_prefill(one_layer[m], shift_types[k], compact);
}

/* ---- more layers: the same operations on an f32 cache that shifts lazily */

static double replay_distance(kvant_model *model, const char *type) {
    kvant_session *a = open_shifting(model, "f32", KVANT_SHIFT_LAZY, 1),
                  *b = open_shifting(model, type, KVANT_SHIFT_EAGER, 1);
    double most = 0;
    uint32_t random = 12345;
    for (int i = 0; i < 24; i++) {
        int32_t end = (int32_t)kvant_seq_end(a, 0);
        random = random * 1664525u + 1013904223u;
        int32_t p0 = (int32_t)(random >> 8) % (end + 1), p1 = p0 + (int32_t)(random >> 20) % 9;
        if (i % 3 == 2 && end > 20) {
            assert_ok(kvant_seq_drop(a, 0, p0, p1));
            assert_ok(kvant_seq_drop(b, 0, p0, p1));
        } else if (i % 5 == 3) {
            assert_ok(kvant_seq_shift(a, 0, p0, -1, 5));
            assert_ok(kvant_seq_shift(b, 0, p0, -1, 5));
        }
        assert_int_equal(frames_of(b, 0), i > 0);
        eval_some(a, 0, i * 10, 3);
        eval_some(b, 0, i * 10, 3);
        most = fmax(most, session_distance(a, b, n_vocab_of(model)));
    }
    kvant_session_close(a);
    kvant_session_close(b);
    return most;
}

static void test_types_follow_f32(void **state) {
    (void)state;
    for (size_t m = 0; m < COUNT(all_models); m++) {
        kvant_model *model = open_small_model(all_models[m]);
        for (size_t k = 0; k < COUNT(shift_types); k++) {
            double allowed = 4 * type_error(model, shift_types[k]),
                   d = replay_distance(model, shift_types[k]);
            print_message("%s, %s: %.2g of %.2g allowed\n", all_models[m], shift_types[k], d, allowed);
            if (!(d <= allowed))
                fail_msg("%s, %s: %g, allowed %g", all_models[m], shift_types[k], d, allowed);
        }
        kvant_model_close(model);
    }
}

/* ---- bystanders */

/* Coded keys and values of sequence 0, whose cells are 0 to n - 1, in all layers; owned by the caller (free).
 */
static uint8_t *copy_cells(kvant_session *s, int32_t n, size_t *n_bytes) {
    uint8_t *all = NULL;
    *n_bytes = 0;
    for (int32_t i = 0; i < s->model->model.hparams.n_layers; i++) {
        const kv_store *store = kv_cache_store(s->cache, i);
        const kv_tensor *tensors[] = {&store->k, &store->v};
        for (int t = 0; t < 2; t++) {
            const kv_tensor *x = tensors[t];
            size_t bytes = (size_t)n * kv_dtype_bytes(x->dtype, x->cols);
            all = realloc(all, *n_bytes + bytes);
            assert_non_null(all);
            kv_layout_unpack(x->layout, x->dtype, x->cols, all + *n_bytes, kv_tensor_data(x), 0, n);
            *n_bytes += bytes;
        }
    }
    return all;
}

/* A copy of the sequence moves; not a byte of the sequence itself, whose cells the copy shared, is touched.
 */
static void test_copies_are_left_alone(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    for (size_t k = 0; k < COUNT(shift_types); k++) {
        kvant_session *s = open_shifting(model, shift_types[k], KVANT_SHIFT_EAGER, 2);
        size_t n_bytes, n_bytes_after;
        eval_some(s, 0, 0, 30);
        assert_int_equal(kv_cache_spans(s->cache, 0, 0).count, 1);
        assert_int_equal(kv_cache_spans(s->cache, 0, 0).at[0].first_cell, 0);
        uint8_t *before = copy_cells(s, 30, &n_bytes);
        assert_ok(kvant_seq_copy(s, 1, 0));
        assert_ok(kvant_seq_shift(s, 1, 10, -1, 7));
        assert_ok(kvant_seq_drop(s, 1, 2, 6));
        assert_ok(kvant_seq_divide(s, 1, 0, -1, 2));
        eval_some(s, 1, 60, 3);
        uint8_t *after = copy_cells(s, 30, &n_bytes_after);
        assert_int_equal(n_bytes, n_bytes_after);
        assert_memory_equal(before, after, n_bytes);
        free(before);
        free(after);
        kvant_session_close(s);
    }
    kvant_model_close(model);
}

/* All cells are taken and shared: a shift has no cells to copy to. Nothing has changed. */
static void test_full_cache(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    int32_t n_vocab = n_vocab_of(model);
    kvant_session *s = open_shifting(model, "q8_0", KVANT_SHIFT_EAGER, 2);
    eval_some(s, 0, 0, 90);
    assert_ok(kvant_seq_copy(s, 1, 0));
    eval_some(s, 1, 90, 1);
    float *before = copy_logits(s, n_vocab);
    assert_ok(kvant_seq_remove(s, 1, 90, -1));
    assert_status(kvant_seq_shift(s, 1, 40, -1, 3), KVANT_CONTEXT_FULL);
    assert_non_null(strstr(kvant_last_error(), "50 cells are shared and must be copied, 6 of 96 are free"));
    assert_status(kvant_seq_drop(s, 1, 4, 40), KVANT_CONTEXT_FULL);
    assert_int_equal(kvant_seq_tokens(s, 1), 90);
    eval_some(s, 1, 90, 1);
    assert_memory_equal(kvant_logits(s, 0), before, (size_t)n_vocab * sizeof *before);
    assert_ok(kvant_seq_remove(s, 1, 90, -1));
    assert_ok(kvant_seq_shift(s, 1, 85, -1, 3)); /* five cells: there is room for them */
    free(before);
    kvant_session_close(s);
    kvant_model_close(model);
}

/* ---- memory */

/* What a shift needs is there from the start, and is the same for any number of cells. */
static void test_memory_is_reserved(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    kvant_session *s = open_shifting(model, "q8_0", KVANT_SHIFT_EAGER, 1);
    kvant_session_info info = KVANT_SESSION_INFO_INIT;
    kvant_session_get_info(s, &info);
    assert_in_range(info.scratch_bytes, 1, 64 << 10);
    eval_some(s, 0, 0, 90);
    int64_t reserved = (int64_t)kv_plan_scratch_bytes(s->rewrite);
    assert_ok(kvant_seq_drop(s, 0, 4, 40));
    eval_some(s, 0, 100, 20);
    int64_t before = kv_alloc_count();
    assert_ok(kvant_seq_drop(s, 0, 4, 44)); /* lists of cells have their room now */
    assert_int_equal(kv_alloc_count(), before);
    assert_int_equal(kv_plan_scratch_bytes(s->rewrite), reserved);
    kvant_session_close(s);
    kvant_model_close(model);
}

/* Memory that runs out, or a cancel, anywhere: all of it or nothing. */
static void test_complete_or_unchanged(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    int32_t n_vocab = n_vocab_of(model), n_failed = 0;
    kvant_session *s = open_shifting(model, "q4_0", KVANT_SHIFT_LAZY, 2);
    eval_some(s, 0, 0, 60);
    assert_ok(kvant_seq_drop(s, 0, 4, 30));
    eval_some(s, 0, 70, 1);
    float *lazy = copy_logits(s, n_vocab);
    assert_ok(kvant_seq_remove(s, 0, 34, -1));
    kvant_session_cancel(s); /* nobody looks */
    kvant_status status = KVANT_NO_MEMORY;
    for (int64_t n = 0; status; n++) {
        kv_alloc_fail_after(n);
        status = kvant_seq_compact(s, 0);
        kv_alloc_fail_after(-1);
        if (!status) break;
        assert_status(status, KVANT_NO_MEMORY);
        kvant_session_resume(s);
        eval_some(s, 0, 70, 1);
        assert_memory_equal(kvant_logits(s, 0), lazy, (size_t)n_vocab * sizeof *lazy);
        assert_ok(kvant_seq_remove(s, 0, 34, -1));
        kvant_session_cancel(s);
        n_failed++;
    }
    kvant_session_resume(s);
    assert_true(n_failed > 3);
    assert_int_equal(frames_of(s, 0), 1);
    free(lazy);
    kvant_session_close(s);
    kvant_model_close(model);
}

/* ---- dividing */

/* The key of token `index` of sequence 0 in layer 0, rotated to the token's true position. */
static void read_key(kvant_session *s, int64_t index, float *key) {
    kv_span_list spans = kv_cache_spans(s->cache, 0, 0);
    size_t i = 0;
    for (; index >= spans.at[i].n_cells; i++) index -= spans.at[i].n_cells;
    const kv_rope *rope = &s->ropes[s->model->model.hparams.layers[0].rope];
    assert_ok(kv_store_read_key(key, kv_cache_store(s->cache, 0), spans.at[i].first_cell + (int32_t)index,
                                spans.at[i].stored + index, rope));
    float row[256];
    const kv_store *store = kv_cache_store(s->cache, 0);
    kv_rope_table_row(row, rope, (double)spans.at[i].turn, 1);
    for (int32_t h = 0; h < store->n_kv_heads; h++) kv_rope_rotate(key + h * store->k_head.dim, rope, row);
}

/* With one layer the key of a token depends on the token and its position: that of a token divided from p to
 * p / d is that of the same token evaluated at p / d. */
static void check_divide(const char *name, const char *type, int32_t divisor) {
    enum { N = 24, HEAD = 6 };
    kvant_model *model = open_small_model(name);
    kvant_session *s = open_shifting(model, type, KVANT_SHIFT_LAZY, 1),
                  *fresh = open_shifting(model, "f32", KVANT_SHIFT_LAZY, 1);
    const kv_store *store = kv_cache_store(s->cache, 0);
    float got[1024], want[1024];
    int32_t n = store->n_kv_heads * store->k_head.dim;
    double allowed = strcmp(type, "f32") == 0 ? F32_ERROR : 0.2;
    eval_some(s, 0, 0, N);
    assert_status(kvant_seq_divide(s, 0, HEAD, -1, 0), KVANT_INVALID);
    assert_status(kvant_seq_divide(s, 0, HEAD, -1, divisor), KVANT_INVALID); /* onto the head */
    assert_ok(kvant_seq_shift(s, 0, HEAD, -1, HEAD * (divisor - 1)));        /* as self-extend does */
    assert_ok(kvant_seq_divide(s, 0, HEAD * divisor, -1, divisor));
    assert_int_equal(kvant_seq_tokens(s, 0), N);
    assert_int_equal(kvant_seq_end(s, 0), HEAD + (N - HEAD - 1) / divisor + 1);
    for (int32_t i = 0; i < N; i++) {
        int32_t pos = i < HEAD ? i : HEAD + (i - HEAD) / divisor;
        assert_ok(kvant_seq_clear(fresh, 0));
        eval_some(fresh, 0, 200, pos);
        eval_some(fresh, 0, i, 1);
        read_key(s, i, got);
        read_key(fresh, pos, want);
        for (int32_t k = 0; k < n; k++)
            if (!(fabsf(got[k] - want[k]) <= (float)allowed * (1 + fabsf(want[k]))))
                fail_msg("%s, %s by %d: token %d at %d: number %d is %g, must be %g", name, type, divisor, i,
                         pos, k, (double)got[k], (double)want[k]);
    }
    eval_some(s, 0, 300, 3); /* and it goes on */
    assert_true(isfinite(kvant_logits(s, 0)[0]));
    kvant_session_close(s);
    kvant_session_close(fresh);
    kvant_model_close(model);
}

static void test_divided_keys(void **state) {
    (void)state;
    for (size_t m = 0; m < COUNT(one_layer); m++)
        for (int32_t divisor = 2; divisor < 6; divisor++) {
            check_divide(one_layer[m], "f32", divisor);
            check_divide(one_layer[m], "q8_0", divisor);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_layer_drop_is_prefill),
        cmocka_unit_test(test_types_follow_f32),
        cmocka_unit_test(test_copies_are_left_alone),
        cmocka_unit_test(test_full_cache),
        cmocka_unit_test(test_memory_is_reserved),
        cmocka_unit_test(test_complete_or_unchanged),
        cmocka_unit_test(test_divided_keys),
    };
    return cmocka_run_group_tests_name("eager", tests, NULL, NULL);
}
