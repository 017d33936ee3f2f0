/* Laws of centred keys: whatever mean is left out of K, the scores are the same; the pairs that are centred
 * are the strongest; a calibration is the same every time and belongs to one model; and it saves what keys of
 * few bits lose to large channels. */
#include "small_session.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "engine/calibrate.h"

#include <unistd.h>

static char folder[] = "/tmp/kvant-centre-XXXXXX", first[64], second[64];

/* ---- any mean is exact ---- */

enum { LAW_CTX = 160, LAW_STEPS = 6 };

/* Of logits, by the rounding of scores in f32: the means are four times as large as keys. Measured: 2.1e-5.
 */
static const double ROUNDING = 2e-4;

static void random_set(kv_centre_set *set, const kvant_model *model, int32_t n_pairs, uint64_t seed) {
    kv_random random;
    kv_random_init(&random, seed);
    assert_ok(kv_centre_set_init(set, &model->model.hparams));
    for (int32_t i = 0; i < set->n_layers; i++)
        for (int32_t j = 0; j < set->n_heads[i] * set->k_dim; j++)
            set->means[i][j] = 4 * kv_random_normal(&random);
    set->n_pairs = n_pairs;
}

static kvant_session *open_centred(kvant_model *model, const kv_centre_set *set, kvant_shift shift) {
    kvant_session *s = NULL;
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.n_ctx = LAW_CTX;
    o.n_sequences = 2;
    o.type_k = o.type_v = "f32";
    o.act = KVANT_ACT_F32;
    o.shift = shift;
    assert_ok(kv_session_create(&s, model, &o, set));
    return s;
}

/* Step i of a life: two sequences that share cells, are cut, moved and gone on with. */
static void step(kvant_session *s, int32_t i) {
    kvant_token batch[40];
    for (int32_t t = 0; t < 40; t++) batch[t] = some_token(100 * i + t);
    if (i == 0) eval(s, 0, batch, 40);
    if (i == 1) assert_ok(kvant_seq_drop(s, 0, 3, 14));
    if (i == 2) assert_ok(kvant_seq_copy(s, 1, 0));
    if (i == 3) assert_ok(kvant_seq_shift(s, 1, 0, -1, 1000));
    if (i == 4) assert_ok(kvant_seq_drop(s, 0, 0, 5));
    eval(s, i % 2, batch, i == 5 ? 33 : 1 + i);
    eval_some(s, i % 2, 7 * i, 3);
}

static void check_law(const char *name, int32_t n_pairs, kvant_shift shift) {
    kvant_model *model = open_small_model(name);
    kv_centre_set none = {0}, set = {0};
    random_set(&none, model, 0, 1);
    random_set(&set, model, n_pairs, (uint64_t)n_pairs);
    kvant_session *plain = open_centred(model, &none, KVANT_SHIFT_LAZY),
                  *centred = open_centred(model, &set, shift);
    double most = 0;
    assert_null(kv_cache_store(plain->cache, 0)->centre);
    assert_non_null(kv_cache_store(centred->cache, 0)->centre);
    for (int32_t i = 0; i < LAW_STEPS; i++) {
        step(plain, i);
        step(centred, i);
        most = fmax(most, session_distance(plain, centred, n_vocab_of(model)));
    }
    print_message("%s, %d pairs: %.2g\n", name, n_pairs, most);
    if (!(most <= ROUNDING)) fail_msg("%s, %d pairs: %g, allowed %g", name, n_pairs, most, ROUNDING);
    kvant_session_close(plain);
    kvant_session_close(centred);
    kv_centre_set_clear(&none);
    kv_centre_set_clear(&set);
    kvant_model_close(model);
}

/* Both pairings, GQA and MQA, partial rotary, YaRN's magnitude, Llama-3 factors, two ways of rotating in one
 * model, windows, softcaps, heads of 80. */
static void test_any_mean_is_exact(void **state) {
    (void)state;
    static const char *const models[] = {"tiny4",          "tiny-out",   "tiny-swa",  "llama-yarn",
                                         "llama3-factors", "llama-hd80", "phi3-long", "qwen3-yarn",
                                         "gemma3-keys",    "gemma2"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int32_t n_pairs = 1; n_pairs < 100; n_pairs *= 7) { /* 49: all */
            check_law(models[m], n_pairs, KVANT_SHIFT_LAZY);
            check_law(models[m], n_pairs, KVANT_SHIFT_EAGER);
        }
}

/* What was saved with one centre goes on with another, or none. */
static void test_saved_states_change_centres(void **state) {
    (void)state;
    kvant_model *model = open_small_model("llama-yarn");
    int32_t n_vocab = n_vocab_of(model);
    for (int32_t i = 0; i < 3; i++) {
        kv_centre_set from = {0}, to = {0};
        random_set(&from, model, i == 0 ? 0 : 5, 7);
        random_set(&to, model, i == 1 ? 0 : 9, 8);
        kvant_session *a = open_centred(model, &from, KVANT_SHIFT_LAZY),
                      *b = open_centred(model, &to, KVANT_SHIFT_LAZY);
        eval_some(a, 0, 0, 70);
        assert_ok(kvant_seq_drop(a, 0, 4, 30));
        assert_ok(kvant_seq_save(a, 0, second));
        assert_ok(kvant_seq_load(b, 1, second));
        eval_some(a, 0, 90, 2);
        eval_some(b, 1, 90, 2);
        assert_true(session_distance(a, b, n_vocab) <= ROUNDING);
        kvant_session_close(a);
        kvant_session_close(b);
        kv_centre_set_clear(&from);
        kv_centre_set_clear(&to);
    }
    kvant_model_close(model);
}

/* ---- the strongest pairs ---- */

static void check_strongest(kv_rope_pairing pairing) {
    enum { DIM = 20, N_ROT = 16, N_PAIRS = 3, N_HEADS = 2 };
    double freq[N_ROT / 2] = {1, 0.5};
    kv_rope rope = {.n_rot = N_ROT, .pairing = pairing, .magnitude = 1, .freq = freq};
    kv_layer_hparams layer = {.n_heads = 2, .n_kv_heads = N_HEADS};
    kv_hparams h = {.n_layers = 1, .k_dim = DIM, .layers = &layer};
    kv_centre_set set = {0};
    kv_arena arena = {0};
    const kv_centre *c = NULL;
    assert_ok(kv_centre_set_init(&set, &h));
    set.n_pairs = N_PAIRS;
    for (int32_t i = 0; i < N_HEADS * DIM; i++) set.means[0][i] = 0.1f;
    set.means[0][N_ROT] = 100; /* not rotary: never chosen */
    static const int32_t strong[N_HEADS][N_PAIRS] = {{1, 4, 7}, {0, 5, 6}};
    for (int32_t head = 0; head < N_HEADS; head++)
        for (int32_t i = 0; i < N_PAIRS; i++) {
            float *key = set.means[0] + head * DIM;
            key[kv_rope_first(&rope, strong[head][i])] = (float)(i - 5);
            key[kv_rope_second(&rope, strong[head][i])] = (float)(7 - i);
        }
    assert_ok(kv_centre_set_layer(&c, &set, 0, &rope, &arena));
    assert_int_equal(c->n_pairs, N_PAIRS);
    assert_memory_equal(c->pairs, strong, sizeof strong);
    for (int32_t i = 0; i < N_HEADS * N_PAIRS; i++) {
        assert_true(c->mean[2 * i] == (float)(i % N_PAIRS - 5));
        assert_true(c->mean[2 * i + 1] == (float)(7 - i % N_PAIRS));
    }
    kv_arena_clear(&arena);
    kv_centre_set_clear(&set);
}

static void test_strongest_pairs(void **state) {
    (void)state;
    check_strongest(KV_ROPE_ADJACENT);
    check_strongest(KV_ROPE_HALVES);
}

/* ---- calibrations ---- */

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(first, sizeof first, "%s/a", folder);
    snprintf(second, sizeof second, "%s/b", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(first);
    unlink(second);
    return rmdir(folder);
}

static uint8_t *read_all(const char *path, size_t *n) {
    kv_file_map map;
    assert_ok(kv_file_map_open(&map, path));
    uint8_t *bytes = malloc(map.size);
    assert_non_null(bytes);
    memcpy(bytes, map.data, *n = map.size);
    kv_file_map_close(&map);
    return bytes;
}

static void write_all(const char *path, const uint8_t *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static kvant_model *open_threads(const char *name, int32_t n_threads) {
    char path[512];
    kvant_model *model = NULL;
    kvant_model_options o = KVANT_MODEL_OPTIONS_INIT;
    o.n_threads = n_threads;
    snprintf(path, sizeof path, KVANT_SOURCE_DIR "/tests/data/%s.gguf", name);
    assert_ok(kvant_model_open(&model, path, &o));
    return model;
}

static void test_calibrations_repeat(void **state) {
    (void)state;
    for (int32_t n_threads = 1; n_threads <= 3; n_threads += 2) {
        kvant_model *model = open_threads("tiny4", n_threads);
        kvant_calibrate_result r = KVANT_CALIBRATE_RESULT_INIT;
        assert_ok(kvant_calibrate(model, n_threads == 1 ? first : second, NULL, &r));
        assert_int_equal(r.n_tokens, 512);
        assert_int_equal(r.n_trials, 6);
        assert_int_equal(r.trials[0].n_pairs, 0);
        assert_int_equal(r.trials[5].n_pairs, 16);
        kvant_model_close(model);
    }
    size_t n_first, n_second;
    uint8_t *a = read_all(first, &n_first), *b = read_all(second, &n_second);
    assert_int_equal(n_first, n_second);
    assert_memory_equal(a, b, n_first);
    free(a);
    free(b);
}

/* A layer's mean that is known: keys of the first layer are bias + W x, and the biases are huge. */
static void test_means_are_those_of_the_keys(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny-out");
    kv_centre_set biases = {0}, set = {0};
    kvant_token tokens[100];
    for (int32_t i = 0; i < 100; i++) tokens[i] = some_token(i);
    kv_calibration c = {.model = model, .tokens = tokens, .n_tokens = 100};
    assert_ok(kv_centre_set_from_biases(&biases, &model->model));
    assert_ok(kv_calibrate_means(&set, &c));
    assert_int_equal(biases.source, KV_CENTRE_BIASES);
    for (int32_t layer = 0; layer < set.n_layers; layer++)
        for (int32_t i = 0; i < set.n_heads[layer] * set.k_dim; i++)
            if (fabsf(biases.means[layer][i]) > 40) /* the rest of a key is about 1 */
                assert_true(fabsf(set.means[layer][i] - biases.means[layer][i]) < 2);
    kv_centre_set_clear(&biases);
    kv_centre_set_clear(&set);
    kvant_model_close(model);
}

static bool stop_at_half(void *user, double fraction) {
    *(double *)user = fraction;
    return fraction < 0.5;
}

static void test_calibration_is_cancelled(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    kvant_calibrate_options o = KVANT_CALIBRATE_OPTIONS_INIT;
    double reached = 0;
    o.progress = stop_at_half;
    o.user = &reached;
    unlink(second);
    assert_status(kvant_calibrate(model, second, &o, NULL), KVANT_CANCELLED);
    assert_true(reached >= 0.5 && reached < 1);
    assert_int_not_equal(access(second, F_OK), 0);
    kvant_model_close(model);
}

static kvant_status try_centre(kvant_session **out, kvant_model *model, const char *type_k, const char *path,
                               kvant_centre mode) {
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.n_ctx = 64;
    o.type_k = type_k;
    o.centre = mode;
    o.centre_path = path;
    return kvant_session_create(out, model, &o);
}

static void check_source(kvant_model *model, const char *type_k, const char *path, kvant_centre mode,
                         const char *source) {
    kvant_session *s = NULL;
    kvant_session_info info = KVANT_SESSION_INFO_INIT;
    kvant_kv_row row = KVANT_KV_ROW_INIT;
    assert_ok(try_centre(&s, model, type_k, path, mode));
    kvant_session_get_info(s, &info);
    assert_ok(kvant_session_kv_row(s, 0, &row));
    assert_string_equal(info.centre_source, source);
    assert_int_equal(row.centre_pairs > 0, strcmp(source, "none") != 0);
    kvant_session_close(s);
}

static void check_refused(kvant_model *model, const char *path, kvant_status status) {
    kvant_session *s = NULL;
    assert_status(try_centre(&s, model, "q4_0", path, KVANT_CENTRE_AUTO), status);
    assert_null(s);
    assert_non_null(strstr(kvant_last_error(), path));
}

static void test_where_centres_come_from(void **state) {
    (void)state;
    kvant_model *biased = open_small_model("tiny-out"), *unbiased = open_small_model("tiny1");
    assert_ok(kvant_calibrate(biased, second, NULL, NULL));
    check_source(biased, "q4_0", NULL, KVANT_CENTRE_AUTO, "key biases");
    check_source(biased, "q8_0", second, KVANT_CENTRE_AUTO, "calibrated");
    check_source(biased, "q4_0", second, KVANT_CENTRE_OFF, "none");
    check_source(biased, "f16", second, KVANT_CENTRE_AUTO, "none");
    check_source(unbiased, "q4_0", NULL, KVANT_CENTRE_AUTO, "none");
    check_refused(unbiased, second, KVANT_INVALID);
    assert_non_null(strstr(kvant_last_error(), "another model"));
    check_refused(biased, "/nowhere/to/be/found", KVANT_NOT_FOUND);
    kvant_model_close(biased);
    kvant_model_close(unbiased);
}

/* Cut off anywhere, or with any byte changed. */
static void test_damaged_files_are_refused(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    size_t n;
    uint8_t *bytes = read_all(first, &n);
    for (size_t length = 0; length < n; length += 1 + length / 8) {
        write_all(second, bytes, length);
        check_refused(model, second, KVANT_FORMAT);
    }
    for (size_t i = 0; i < n; i += 1 + i / 16) {
        bytes[i] ^= 0x10;
        write_all(second, bytes, n);
        check_refused(model, second, KVANT_FORMAT);
        bytes[i] ^= 0x10;
    }
    write_all(second, bytes, n);
    kvant_session *s = NULL;
    assert_ok(try_centre(&s, model, "q4_0", second, KVANT_CENTRE_AUTO));
    kvant_session_close(s);
    free(bytes);
    kvant_model_close(model);
}

/* Memory that runs out at any allocation of reading a calibration and making its tables. */
static void test_no_memory(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    kvant_status status = KVANT_NO_MEMORY;
    int32_t n = 0;
    for (; status && n < 1000; n++) {
        kvant_session *s = NULL;
        kv_alloc_fail_after(n);
        status = try_centre(&s, model, "q4_0", first, KVANT_CENTRE_AUTO);
        kv_alloc_fail_after(-1);
        if (status) assert_status(status, KVANT_NO_MEMORY);
        kvant_session_close(s);
    }
    assert_in_range(n, 20, 999);
    kvant_model_close(model);
}

/* ---- large channels ---- */

static double log_sum_exp(const float *x, int32_t n) {
    double most = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++) most = fmax(most, (double)x[i]);
    for (int32_t i = 0; i < n; i++) sum += exp((double)x[i] - most);
    return most + log(sum);
}

/* Mean KL divergence of 150 predictions from those of a cache of f32. */
static double divergence(kvant_model *model, const char *type_k, kvant_rotation rotation,
                         kvant_centre centre) {
    enum { N = 150 };
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    kvant_session *base = open_session(model, "f32", N, 1), *s = NULL;
    int32_t n_vocab = n_vocab_of(model);
    kvant_token tokens[N];
    double kl = 0;
    o.n_ctx = N;
    o.type_k = type_k;
    o.type_v = "f32";
    o.act = KVANT_ACT_F32;
    o.rotation = rotation;
    o.centre = centre;
    assert_ok(kvant_session_create(&s, model, &o));
    for (int32_t i = 0; i < N; i++) tokens[i] = some_token(i);
    assert_ok(kvant_eval(base, &(kvant_chunk){0, tokens, N, KVANT_LOGITS_ALL}, 1));
    assert_ok(kvant_eval(s, &(kvant_chunk){0, tokens, N, KVANT_LOGITS_ALL}, 1));
    for (int32_t i = 0; i < N; i++) {
        const float *p = kvant_logits(base, i), *q = kvant_logits(s, i);
        double norm_p = log_sum_exp(p, n_vocab), norm_q = log_sum_exp(q, n_vocab);
        for (int32_t t = 0; t < n_vocab; t++) {
            double log_p = (double)p[t] - norm_p;
            kl += exp(log_p) * (log_p - ((double)q[t] - norm_q)) / N;
        }
    }
    kvant_session_close(base);
    kvant_session_close(s);
    return kl;
}

/* The same model without what makes it hard: biases that are as large as others'. */
static void tame(kvant_model *model) {
    for (int32_t layer = 0; layer < model->model.hparams.n_layers; layer++) {
        const kv_tensor *t = model->model.weights.layers[layer].k_bias;
        float *bias = kv_tensor_data(t);
        for (int64_t i = 0; i < t->rows * t->cols; i++)
            if (fabsf(bias[i]) > 40) bias[i] = 0;
    }
}

static void test_large_channels(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny-out"), *tamed = open_small_model("tiny-out");
    tame(tamed);
    double plain = divergence(model, "q4_0", KVANT_ROTATION_OFF, KVANT_CENTRE_OFF),
           plain8 = divergence(model, "q8_0", KVANT_ROTATION_OFF, KVANT_CENTRE_OFF),
           rotated = divergence(model, "q4_0", KVANT_ROTATION_AUTO, KVANT_CENTRE_OFF),
           centred = divergence(model, "q4_0", KVANT_ROTATION_AUTO, KVANT_CENTRE_AUTO),
           easy = divergence(tamed, "q4_0", KVANT_ROTATION_AUTO, KVANT_CENTRE_AUTO);
    print_message(
        "KL: q4_0 plain %.3g (q8_0 %.3g), rotated %.3g, centred %.3g; without large channels %.3g\n", plain,
        plain8, rotated, centred, easy);
    assert_true(plain > 10 * plain8); /* the fault is there to be mended */
    assert_true(centred <= 3 * easy);
    kvant_model_close(model);
    kvant_model_close(tamed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_mean_is_exact),
        cmocka_unit_test(test_strongest_pairs),
        cmocka_unit_test(test_calibrations_repeat),
        cmocka_unit_test(test_damaged_files_are_refused),
        cmocka_unit_test(test_means_are_those_of_the_keys),
        cmocka_unit_test(test_calibration_is_cancelled),
        cmocka_unit_test(test_where_centres_come_from),
        cmocka_unit_test(test_large_channels),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_saved_states_change_centres),
    };
    return cmocka_run_group_tests_name("centre", tests, make_folder, remove_folder);
}
