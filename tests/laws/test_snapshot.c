/* Laws of saving and restoring, on small models with everything but the cache in f32: what was saved in one
 * cache means the same in another, whatever its types, layouts and rotation, wherever its cells lie; the
 * logits afterwards are those of a run that was never interrupted.
 *
 * ctest: single */
#include "snapshot_fixture.h"

static const coding codings[] = {
    {.type_k = "f32", .type_v = "f32", .layout = "rows"},
    {.type_k = "f16", .type_v = "f16"},
    {.type_k = "q8_0", .type_v = "q8_0", .layout = "rows"},
    {.type_k = "q8_0", .type_v = "q8_0", .layout = "quad16"},
    {.type_k = "q8_0", .type_v = "q8_0", .layout = "rows", .rotation = KVANT_ROTATION_OFF},
    {.type_k = "q8_0", .type_v = "q4_0", .layout = "tile16x4"},
    {.type_k = "q5_1", .type_v = "iq4_nl"},
    {.type_k = "q4_0", .type_v = "q4_0", .rotation = KVANT_ROTATION_OFF},
    {.type_k = "q8_0", .type_v = "q8_0", .centre = KVANT_CENTRE_OFF}};
enum { N_CODINGS = sizeof codings / sizeof *codings, N_TOKENS = 50 };

/* Sums of floats in another order, and a Hadamard transform undone; measured: 2e-5. */
static const double F32_ERROR = 1e-4;

static bool quantized(const char *type) { return type[0] == 'q' || type[0] == 'i'; }

/* A transform is of a type that is quantized. */
static bool coded_alike(const coding *a, const coding *b) {
    bool turned = quantized(a->type_k) || quantized(a->type_v);
    return strcmp(a->type_k, b->type_k) == 0 && strcmp(a->type_v, b->type_v) == 0 &&
           (!turned || (a->rotation == b->rotation && a->centre == b->centre));
}

/* The largest difference that a type makes to logits without being saved. */
static double coding_error(kvant_model *model, const coding *c) {
    kvant_session *exact = open_coded(model, &codings[0], 64, 1), *s = open_coded(model, c, 64, 1);
    double most = F32_ERROR;
    for (int32_t i = 0; i < N_TOKENS + 4; i++) {
        eval_some(exact, 0, i, 1);
        eval_some(s, 0, i, 1);
        most = fmax(most, session_distance(exact, s, n_vocab_of(model)));
    }
    kvant_session_close(exact);
    kvant_session_close(s);
    return most;
}

/* Two turns: what is kept at the start, and the rest. */
static void fill(kvant_session *s, int32_t seq) {
    eval_some(s, seq, 0, N_TOKENS);
    assert_ok(kvant_seq_drop(s, seq, 4, 14));
    eval_some(s, seq, N_TOKENS, 2);
}

static double continue_both(kvant_session *a, int32_t seq_a, kvant_session *b, int32_t seq_b,
                            kvant_model *model) {
    double most = 0;
    for (int32_t i = 0; i < 3; i++) {
        eval_some(a, seq_a, 70 + i, 1);
        eval_some(b, seq_b, 70 + i, 1);
        most = fmax(most, session_distance(a, b, n_vocab_of(model)));
    }
    return most;
}

typedef struct place {
    int32_t cell;
    int64_t stored;
} place;

/* Where a position of a sequence lies. */
static place find(const kvant_session *s, int32_t layer, int32_t seq, int64_t pos) {
    kv_span_list spans = kv_cache_spans(s->cache, kv_cache_group(s->cache, layer), seq);
    size_t i = 0;
    while (i < spans.count && kv_span_end(&spans.at[i]) <= pos) i++;
    assert_true(i < spans.count && !kv_span_released(&spans.at[i]));
    int64_t k = pos - kv_span_pos(&spans.at[i]);
    return (place){spans.at[i].first_cell + (int32_t)k, spans.at[i].stored + k};
}

/* Keys and values of two sequences, as numbers: floats hold what any type does. */
static void check_values(kvant_session *a, int32_t seq_a, kvant_session *b, int32_t seq_b) {
    static float x[4096], y[4096];
    for (int32_t layer = 0; layer < a->model->model.hparams.n_layers; layer++) {
        const kv_store *p = kv_cache_store(a->cache, layer), *q = kv_cache_store(b->cache, layer);
        const kv_rope *rope = &a->ropes[a->model->model.hparams.layers[layer].rope];
        for (int64_t pos = 0; pos < kvant_seq_end(a, seq_a); pos++) {
            place at = find(a, layer, seq_a, pos), to = find(b, layer, seq_b, pos);
            int32_t n = p->n_kv_heads * p->k_head.dim;
            assert_in_range(n, 1, 4096);
            assert_int_equal(at.stored, to.stored);
            assert_ok(kv_store_read_key(x, p, at.cell, at.stored, rope));
            assert_ok(kv_store_read_key(y, q, to.cell, to.stored, rope));
            assert_true(logit_distance(x, y, n) <= F32_ERROR);
            assert_ok(kv_store_read_value(x, p, at.cell));
            assert_ok(kv_store_read_value(y, q, to.cell));
            assert_true(logit_distance(x, y, p->n_kv_heads * p->v_head.dim) <= F32_ERROR);
        }
    }
}

static void check_pair(kvant_model *model, const coding *from, const coding *to, const double *errors) {
    kvant_session *a = open_coded(model, from, 128, 1), *b = open_coded(model, to, 128, 4);
    fill(a, 0);
    make_holes(b, 20, 0, 2);
    assert_ok(kvant_seq_save(a, 0, snapshot_path));
    assert_ok(kvant_seq_load(b, 3, snapshot_path));
    assert_int_equal(kvant_seq_end(b, 3), kvant_seq_end(a, 0));
    assert_int_equal(kvant_seq_tokens(b, 3), kvant_seq_tokens(a, 0));
    if (coded_alike(from, to)) assert_true(same_rows(a, 0, b, 3));
    if (to == codings) check_values(a, 0, b, 3);
    /* what is converted is coded twice */
    double allowed = coded_alike(from, to) ? F32_ERROR : 2 * (errors[from - codings] + errors[to - codings]);
    double d = continue_both(a, 0, b, 3, model);
    if (!(d <= allowed))
        fail_msg("%s/%s %s to %s/%s %s: %g, allowed %g", from->type_k, from->type_v,
                 from->layout ? from->layout : "own", to->type_k, to->type_v, to->layout ? to->layout : "own",
                 d, allowed);
    kvant_session_close(a);
    kvant_session_close(b);
}

static void test_every_coding_into_every_other(void **state) {
    (void)state;
    static const char *const models[] = {"tiny1", "llama-yarn", "llama-hd80", "llama-bias"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        kvant_model *model = open_small_model(models[m]);
        double errors[N_CODINGS];
        for (int i = 0; i < N_CODINGS; i++) errors[i] = coding_error(model, &codings[i]);
        for (int i = 0; i < N_CODINGS; i++)
            for (int k = 0; k < N_CODINGS; k++) check_pair(model, &codings[i], &codings[k], errors);
        kvant_model_close(model);
    }
}

/* Every type of a cache, saved and restored alike: byte by byte, and as logits bit by bit. */
static void test_every_type_is_exact(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    for (int32_t i = 0; i < kv_dtype_count(); i++) {
        if (!kv_dtype_at(i)->caches) continue;
        coding c = {.type_k = kv_dtype_at(i)->name, .type_v = kv_dtype_at(i)->name};
        kvant_session *a = open_coded(model, &c, 128, 1), *b = open_coded(model, &c, 128, 1);
        fill(a, 0);
        eval_some(b, 0, 500, 30); /* goes */
        assert_ok(kvant_seq_save(a, 0, snapshot_path));
        assert_ok(kvant_seq_load(b, 0, snapshot_path));
        assert_true(same_rows(a, 0, b, 0));
        double d = continue_both(a, 0, b, 0, model);
        if (!(d <= 1e-5)) fail_msg("%s: %g", c.type_k, d); /* dropped cells left holes in one of them */
        kvant_session_close(a);
        kvant_session_close(b);
    }
    kvant_model_close(model);
}

/* Cells in the same order: the same bits, in every small model. */
static void test_the_same_bits(void **state) {
    (void)state;
    static const char *const models[] = {"tiny1",       "tiny4",  "tiny-swa", "llama-yarn", "llama-hd80",
                                         "gemma3-keys", "gemma2", "phi3",     "qwen3-yarn"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        kvant_model *model = open_small_model(models[m]);
        kvant_session *a = open_session(model, "q8_0", 128, 1), *b = open_session(model, "q8_0", 128, 2);
        eval_some(a, 0, 0, N_TOKENS);
        assert_ok(kvant_seq_save(a, 0, snapshot_path));
        assert_ok(kvant_seq_load(b, 1, snapshot_path));
        if (continue_both(a, 0, b, 1, model) != 0) fail_msg("%s", models[m]);
        kvant_session_close(a);
        kvant_session_close(b);
        kvant_model_close(model);
    }
}

/* A restored sequence shifts, is cut and copied as any other. */
static void test_restored_sequences_move(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny-swa");
    kvant_session *a = open_session(model, "q8_0", 128, 2), *b = open_session(model, "q8_0", 128, 2);
    fill(a, 0);
    assert_ok(kvant_seq_save(a, 0, snapshot_path));
    assert_ok(kvant_seq_load(b, 1, snapshot_path));
    for (int round = 0; round < 3; round++) {
        assert_ok(kvant_seq_drop(a, 0, 3, 9));
        assert_ok(kvant_seq_drop(b, 1, 3, 9));
        double d = continue_both(a, 0, b, 1, model);
        if (!(d <= 1e-5)) fail_msg("round %d: %g", round, d);
    }
    assert_ok(kvant_seq_save(b, 1, snapshot_path)); /* of what was restored, into itself */
    assert_ok(kvant_seq_load(b, 1, snapshot_path));
    assert_true(same_rows(a, 0, b, 1));
    assert_true(continue_both(a, 0, b, 1, model) <= 1e-5);
    kvant_session_close(a);
    kvant_session_close(b);
    kvant_model_close(model);
}

/* Field report F22: 500 tokens into another sequence of a cache with holes; the next request reads one. */
static void check_reuse(const char *name) {
    enum { N = 500 };
    kvant_model *model = open_small_model(name);
    kvant_session *a = open_session(model, "q8_0", 512, 1), *b = open_session(model, "q8_0", 2048, 4);
    kvant_token tokens[N + 1], held[N];
    size_t n = 0, n_reused = 0;
    for (int32_t i = 0; i <= N; i++) tokens[i] = some_token(i);
    eval(a, 0, tokens, N);
    assert_ok(kvant_seq_save(a, 0, snapshot_path));
    make_holes(b, 40, 0, 1);
    eval_some(b, 3, 600, 5);
    assert_ok(kvant_seq_load(b, 3, snapshot_path));
    assert_ok(kvant_seq_get_tokens(b, 3, held, N, &n));
    assert_int_equal(n, N);
    assert_memory_equal(held, tokens, sizeof held);
    assert_true(same_rows(a, 0, b, 3));
    assert_ok(kvant_seq_reuse(b, 3, tokens, N + 1, &n_reused));
    assert_int_equal(n_reused, N);
    eval(b, 3, tokens + n_reused, 1);
    eval(a, 0, tokens + N, 1);
    double d = session_distance(a, b, n_vocab_of(model));
    if (!(d <= 1e-5)) fail_msg("%s: %g", name, d);
    assert_ok(kvant_seq_reuse(b, 3, tokens, N + 1, &n_reused)); /* the last token gives the logits again */
    assert_int_equal(n_reused, N);
    tokens[490]++;
    assert_ok(kvant_seq_reuse(b, 3, tokens, N, &n_reused));
    assert_int_equal(n_reused, 490);
    kvant_session_close(a);
    kvant_session_close(b);
    kvant_model_close(model);
}

static void test_what_is_restored_is_not_read_again(void **state) {
    (void)state;
    check_reuse("tiny4");
    check_reuse("tiny-swa");
}

/* Layers with a window have let go of what lies behind it: it stays gone, and is not missed. A cache that
 * keeps less takes what it would keep; one that keeps more cannot be filled. */
static void test_windows(void **state) {
    (void)state;
    enum { N = 200 };
    const coding narrow = {.type_k = "q8_0", .type_v = "q8_0", .margin = 8},
                 whole = {.type_k = "q8_0", .type_v = "q8_0", .margin = -1};
    kvant_model *model = open_small_model("tiny-swa");
    kvant_session *a = open_coded(model, &narrow, 512, 1), *b = open_coded(model, &narrow, 512, 2),
                  *c = open_coded(model, &whole, 512, 1);
    assert_int_equal(kv_cache_n_groups(a->cache), 2);
    assert_int_equal(kv_cache_n_groups(c->cache), 1);
    eval_some(a, 0, 0, N);
    eval_some(c, 0, 0, N);
    assert_ok(kvant_seq_save(a, 0, snapshot_path));
    size_t n_narrow, n_whole;
    free(read_file(&n_narrow));
    assert_ok(kvant_seq_load(b, 1, snapshot_path));
    assert_true(same_rows(a, 0, b, 1));
    assert_true(continue_both(a, 0, b, 1, model) <= 1e-5);
    assert_status(kvant_seq_load(c, 0, snapshot_path), KVANT_UNSUPPORTED);
    assert_non_null(strstr(kvant_last_error(), "this cache keeps more"));
    assert_int_equal(kvant_seq_tokens(c, 0), N);
    assert_ok(kvant_seq_save(c, 0, snapshot_path));
    free(read_file(&n_whole));
    assert_true(n_narrow < n_whole); /* what was released is not in the file */
    assert_ok(kvant_seq_load(b, 0, snapshot_path));
    assert_true(continue_both(c, 0, b, 0, model) <= 1e-5);
    assert_true(kv_cache_rewind(b->cache, 0, 60) < 60); /* it cannot go back to where the window is gone */
    kvant_session_close(a);
    kvant_session_close(b);
    kvant_session_close(c);
    kvant_model_close(model);
}

/* Field report F24: no logits, no context, only the cells. */
static void test_size(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    kvant_session *s = open_session(model, "f16", 32768, 1);
    kvant_session_info info = KVANT_SESSION_INFO_INIT;
    kvant_session_get_info(s, &info);
    size_t empty, n;
    assert_ok(kvant_seq_save(s, 0, snapshot_path));
    free(read_file(&empty));
    eval_some(s, 0, 0, 10);
    assert_ok(kvant_seq_save(s, 0, snapshot_path));
    free(read_file(&n));
    assert_true(empty <= 4096);
    assert_true(n <= empty + 10 * (size_t)info.kv_bytes_per_token + 256);
    assert_ok(kvant_seq_save(s, 0, snapshot_path));
    kvant_session_close(s);
    kvant_model_close(model);
}

/* An empty sequence is one too. */
static void test_empty(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    kvant_session *s = open_session(model, "q8_0", 64, 2);
    assert_ok(kvant_seq_save(s, 1, snapshot_path));
    eval_some(s, 0, 0, 10);
    assert_ok(kvant_seq_load(s, 0, snapshot_path));
    assert_int_equal(kvant_seq_end(s, 0), 0);
    eval_some(s, 0, 0, 64); /* and its cells are free */
    kvant_session_close(s);
    kvant_model_close(model);
}

/* ---- memory that the host does not reach ---- */

static uint8_t hidden[1 << 16];

static kv_status upload(kv_range to, const void *from) {
    memcpy(hidden + to.at, from, to.bytes);
    return KVANT_OK;
}

static kv_status download(void *to, kv_range from) {
    memcpy(to, hidden + from.at, from.bytes);
    return KVANT_OK;
}

static void test_rows_of_a_device(void **state) {
    (void)state;
    kv_device device = {.upload = upload, .download = download};
    kv_buffer buffer = {.device = &device, .bytes = sizeof hidden};
    for (int32_t l = 0; l < kv_layout_count(); l++) {
        kv_tensor t = {&kv_dtype_q8_0, kv_layout_at(l), 150, 64, &buffer, 128};
        size_t row = kv_dtype_bytes(t.dtype, t.cols);
        uint8_t *plain = malloc(150 * row), *back = malloc(150 * row), *staging = malloc(kv_rows_staging(&t));
        assert_true(plain && back && staging && 128 + kv_tensor_bytes(&t) <= sizeof hidden);
        for (size_t i = 0; i < 150 * row; i++) plain[i] = (uint8_t)(i * 2654435761u >> 11);
        for (int64_t at = 0, n; at < 150; at += n) { /* pieces that cut tiles */
            n = at + 37 < 150 ? 37 : 150 - at;
            assert_ok(kv_rows_write(&t, plain + (size_t)at * row, at, n, staging));
        }
        for (int64_t at = 0, n; at < 150; at += n) {
            n = at + KV_SNAPSHOT_ROWS < 150 ? KV_SNAPSHOT_ROWS : 150 - at;
            assert_ok(kv_rows_read(back + (size_t)at * row, &t, at, n, staging));
        }
        assert_memory_equal(plain, back, 150 * row);
        free(plain);
        free(back);
        free(staging);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_coding_into_every_other, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_every_type_is_exact, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_the_same_bits, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_restored_sequences_move, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_what_is_restored_is_not_read_again, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_windows, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_size, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_empty, open_folder, close_folder),
        cmocka_unit_test(test_rows_of_a_device)};
    return cmocka_run_group_tests_name("snapshots", tests, NULL, NULL);
}
