/* Several devices change nothing but where things are: the logits of every split of the layers, and of every
 * place of the KV cache, are those of one device bit for bit, through prefill, decoding, shifts, copies and
 * removals, for several types of K and V; what crosses between devices is the activations and nothing else,
 * and nothing for a shift; what the devices hold adds up; names that do not exist are errors that say what
 * does.
 */
#include "session_fixture.h"

#include "base/memory.h"

enum { N_CTX = 256, PROMPT = 37, STEPS = 6 };

typedef struct placing {
    const char *devices, *split, *kv_device;
    int32_t n_threads;
} placing;

static const placing placings[] = {
    {"cpu:0", NULL, NULL, 2},
    {"cpu:1", NULL, NULL, 1},
    {"cpu:0,cpu:1", NULL, NULL, 2},
    {"cpu:1,cpu:0", NULL, NULL, 3}, /* 2 threads and 1 */
    {"cpu:0,cpu:1", "1,3", NULL, 2},
    {"cpu:0,cpu:1", "3,1", NULL, 2},
    {"cpu:0,cpu:1", "0,1", NULL, 2},
    {"cpu:0,cpu:1", "1,0", "cpu:1", 2},
    {"cpu:0,cpu:1", "1,0", "0=cpu:1;-1=cpu:0", 2},
    {"cpu:0,cpu:1", "1,1", "0:-1=cpu:1;0=cpu:0", 2},
    {"cpu:0,cpu:1", NULL, "cpu:0", 2},
    {"cpu:0,cpu:3,cpu:7", NULL, "cpu:3", 1}, /* one thread each all the same */
};
enum { N_PLACINGS = sizeof placings / sizeof *placings };

static kvant_model *open_placed(const char *path, const placing *p) {
    kvant_model_options o = KVANT_MODEL_OPTIONS_INIT;
    o.n_threads = p->n_threads;
    o.devices = p->devices;
    o.split = p->split;
    kvant_model *m = NULL;
    fixture_check(kvant_model_open(&m, path, &o));
    return m;
}

typedef struct kv_types {
    const char *k, *v;
    kvant_act act;
    kvant_shift shift;
} kv_types;

static kvant_session *session_placed(kvant_model *m, const placing *p, const kv_types *t) {
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.n_ctx = N_CTX;
    o.n_sequences = 2;
    o.type_k = t->k;
    o.type_v = t->v;
    o.act = t->act;
    o.shift = t->shift;
    o.kv_device = p->kv_device;
    return fixture_session(m, o);
}

/* ---- the same bits */

typedef struct record {
    float *logits;
    size_t n, capacity;
} record;

static void note_logits(record *r, const kvant_model *m, const kvant_session *s) {
    size_t n_vocab = (size_t)fixture_n_vocab(m);
    for (int32_t i = 0; i < kvant_n_logits(s); i++) {
        assert_true(r->n + n_vocab <= r->capacity);
        memcpy(r->logits + r->n, kvant_logits(s, i), n_vocab * sizeof(float));
        r->n += n_vocab;
    }
}

static void say(record *r, kvant_session *s, const kvant_model *m, int32_t seq, int32_t from, int32_t n) {
    fixture_check(fixture_eval(s, m, seq, from, n, KVANT_LOGITS_LAST));
    note_logits(r, m, s);
}

/* What chats do to a cache. */
static void play(record *r, kvant_session *s, const kvant_model *m) {
    say(r, s, m, 0, 0, PROMPT);
    for (int32_t i = 0; i < STEPS; i++) say(r, s, m, 0, PROMPT + i, 1);
    fixture_check(kvant_seq_drop(s, 0, 5, 15));
    say(r, s, m, 0, 50, 3);
    fixture_check(kvant_seq_copy(s, 1, 0));
    fixture_check(kvant_seq_shift(s, 1, 20, -1, 11));
    say(r, s, m, 1, 60, 2);
    fixture_check(kvant_seq_remove(s, 0, 20, 24));
    fixture_check(kvant_seq_drop(s, 0, 2, 7));
    say(r, s, m, 0, 70, 9);
    say(r, s, m, 0, 80, 1);
}

static void open_record(record *r, const kvant_model *m) {
    r->capacity = (size_t)fixture_n_vocab(m) * (STEPS + 8);
    r->n = 0;
    r->logits = malloc(r->capacity * sizeof *r->logits);
    assert_non_null(r->logits);
}

static const kv_types types[] = {
    {"q8_0", "q4_0", KVANT_ACT_FAST, KVANT_SHIFT_LAZY},  {"f32", "f32", KVANT_ACT_F32, KVANT_SHIFT_EAGER},
    {"q4_0", "q8_0", KVANT_ACT_FAST, KVANT_SHIFT_EAGER}, {"f16", "f16", KVANT_ACT_FAST, KVANT_SHIFT_LAZY},
    {"q5_1", "bf16", KVANT_ACT_F32, KVANT_SHIFT_LAZY},
};
enum { N_TYPES = sizeof types / sizeof *types };

/* Every placing against the first, which is one device. */
static void check_same_bits(const char *path, int32_t n_types) {
    record want[N_TYPES], got;
    for (int32_t p = 0; p < N_PLACINGS; p++) {
        kvant_model *m = open_placed(path, &placings[p]);
        for (int32_t t = 0; t < n_types; t++) {
            kvant_session *s = session_placed(m, &placings[p], &types[t]);
            record *r = p ? &got : &want[t];
            open_record(r, m);
            play(r, s, m);
            if (p) {
                assert_int_equal(got.n, want[t].n);
                if (memcmp(got.logits, want[t].logits, got.n * sizeof(float)))
                    fail_msg("%s, K %s V %s: logits differ on %s, split %s, KV on %s", path, types[t].k,
                             types[t].v, placings[p].devices, placings[p].split ? placings[p].split : "even",
                             placings[p].kv_device ? placings[p].kv_device : "the weights' devices");
                free(got.logits);
            }
            kvant_session_close(s);
        }
        kvant_model_close(m);
    }
    for (int32_t t = 0; t < n_types; t++) free(want[t].logits);
}

static void test_tiny_models(void **state) {
    (void)state;
    check_same_bits(FIXTURE_DATA "tiny4.gguf", N_TYPES);
    check_same_bits(FIXTURE_DATA "tiny-swa.gguf", 3);  /* windows */
    check_same_bits(FIXTURE_DATA "tiny-out.gguf", 2);  /* an output of its own */
    check_same_bits(FIXTURE_DATA "gemma2.gguf", 3);    /* norms behind, soft caps */
    check_same_bits(FIXTURE_DATA "phi3-long.gguf", 2); /* factors of the rotation */
}

static void test_a_real_model(void **state) {
    (void)state;
    FILE *file = fopen(FIXTURE_SMOLLM2, "rb");
    if (!file) {
        print_message("skipped: %s is not there\n", FIXTURE_SMOLLM2);
        skip();
    }
    fclose(file);
    static const placing some[] = {
        {"cpu:0", NULL, NULL, 2}, {"cpu:0,cpu:1", "1,2", NULL, 2}, {"cpu:0,cpu:1", "1,1", "cpu:1", 2}};
    record r[3];
    for (int i = 0; i < 3; i++) {
        kvant_model *m = open_placed(FIXTURE_SMOLLM2, &some[i]);
        kvant_session *s = session_placed(m, &some[i], &types[0]);
        open_record(&r[i], m);
        say(&r[i], s, m, 0, 0, PROMPT);
        fixture_check(kvant_seq_drop(s, 0, 5, 15));
        say(&r[i], s, m, 0, PROMPT, 1);
        kvant_session_close(s);
        kvant_model_close(m);
        assert_memory_equal(r[i].logits, r[0].logits, r[0].n * sizeof(float));
    }
    for (int i = 0; i < 3; i++) free(r[i].logits);
}

/* ---- what crosses */

static int64_t crossed(const kvant_session *s) {
    kvant_session_info info = KVANT_SESSION_INFO_INIT;
    kvant_session_get_info(s, &info);
    return info.crossed_bytes;
}

/* Bytes that evaluating n tokens copies; a shift, lazy or in place, copies none. */
static int64_t crossed_by_shifting(const placing *p, int32_t n, kvant_act act, kvant_shift shift) {
    kvant_model *m = open_placed(FIXTURE_DATA "tiny4.gguf", p);
    kvant_session *s = session_placed(m, p, &(kv_types){"q8_0", "f16", act, shift});
    fixture_check(fixture_eval(s, m, 0, 0, n, KVANT_LOGITS_LAST));
    int64_t first = crossed(s);
    fixture_check(kvant_seq_drop(s, 0, 0, n / 2));
    fixture_check(kvant_seq_shift(s, 0, 0, -1, 100));
    assert_int_equal(crossed(s), first);
    fixture_check(fixture_eval(s, m, 0, n, n, KVANT_LOGITS_LAST)); /* with turned keys: no more than before */
    assert_int_equal(crossed(s), 2 * first);
    fixture_check(kvant_seq_clear(s, 0));
    assert_int_equal(crossed(s), 2 * first);
    kvant_session_close(s);
    kvant_model_close(m);
    return first;
}

static int64_t crossed_by(const placing *p, int32_t n, kvant_act act) {
    int64_t lazy = crossed_by_shifting(p, n, act, KVANT_SHIFT_LAZY);
    assert_int_equal(crossed_by_shifting(p, n, act, KVANT_SHIFT_EAGER), lazy);
    return lazy;
}

static void test_only_activations_cross(void **state) {
    (void)state;
    kvant_model *m = open_placed(FIXTURE_DATA "tiny4.gguf", &placings[0]);
    kvant_model_info info = KVANT_MODEL_INFO_INIT;
    kvant_model_get_info(m, &info);
    kvant_model_close(m);
    int64_t n_embd = info.n_embd, q = (int64_t)info.n_heads * info.head_dim,
            kv = (int64_t)info.n_kv_heads * info.head_dim, f32 = sizeof(float);
    assert_int_equal(info.n_layers, 4);
    for (int32_t n = 1; n <= 20; n += 19) {
        /* one boundary: the stream of activations; two with three devices */
        assert_int_equal(crossed_by(&placings[0], n, KVANT_ACT_FAST), 0);
        assert_int_equal(crossed_by(&(placing){"cpu:0,cpu:1", NULL, NULL, 2}, n, KVANT_ACT_FAST),
                         n * n_embd * f32);
        assert_int_equal(crossed_by(&(placing){"cpu:0,cpu:1", "1,3", NULL, 2}, n, KVANT_ACT_F32),
                         n * n_embd * f32);
        assert_int_equal(crossed_by(&(placing){"cpu:0,cpu:1", "0,1", NULL, 2}, n, KVANT_ACT_FAST), 0);
        assert_int_equal(crossed_by(&(placing){"cpu:0,cpu:1,cpu:2", "1,2,1", NULL, 2}, n, KVANT_ACT_FAST),
                         2 * n * n_embd * f32);
        /* KV on the other device: q, k, v there and what attention gives back, in each layer */
        assert_int_equal(crossed_by(&(placing){"cpu:0,cpu:1", "1,0", "cpu:1", 2}, n, KVANT_ACT_F32),
                         4 * n * (q + 2 * kv + q) * f32);
        assert_int_equal(crossed_by(&(placing){"cpu:0,cpu:1", "1,0", "2=cpu:1", 2}, n, KVANT_ACT_F32),
                         n * (q + 2 * kv + q) * f32);
    }
}

/* ---- what they hold */

static void test_what_devices_hold_adds_up(void **state) {
    (void)state;
    for (int32_t p = 0; p < N_PLACINGS; p++) {
        kvant_model *m = open_placed(FIXTURE_DATA "tiny4.gguf", &placings[p]);
        kvant_session *s = session_placed(m, &placings[p], &types[0]);
        fixture_check(fixture_eval(s, m, 0, 0, 9, KVANT_LOGITS_LAST));
        fixture_check(fixture_eval(s, m, 0, 9, 1, KVANT_LOGITS_LAST));
        kvant_session_info info = KVANT_SESSION_INFO_INIT;
        kvant_session_get_info(s, &info);
        int64_t kv = 0, scratch = 0;
        int32_t n_layers = 0, n_threads = 0;
        for (int32_t i = 0; i < info.n_devices; i++) {
            kvant_device_row row = KVANT_DEVICE_ROW_INIT;
            fixture_check(kvant_session_device(s, i, &row));
            assert_true(row.weight_bytes > 0 || !row.n_layers);
            assert_true(row.n_threads >= 1);
            kv += row.kv_bytes;
            scratch += row.scratch_bytes;
            n_layers += row.n_layers;
            n_threads += row.n_threads;
        }
        assert_int_equal(kv, info.kv_bytes_total);
        assert_int_equal(scratch, info.scratch_bytes);
        assert_int_equal(n_layers, 4);
        assert_int_equal(n_threads,
                         placings[p].n_threads > info.n_devices ? placings[p].n_threads : info.n_devices);
        kvant_device_row none = KVANT_DEVICE_ROW_INIT;
        assert_int_equal(kvant_session_device(s, info.n_devices, &none), KVANT_INVALID);
        kvant_session_close(s);
        kvant_model_close(m);
    }
}

/* The device of each layer's KV, as the table says. */
static void test_kv_is_where_it_was_asked_for(void **state) {
    (void)state;
    placing p = {"cpu:0,cpu:1", "3,1", "1=cpu:1", 2};
    static const char *const want[] = {"cpu:0", "cpu:1", "cpu:0", "cpu:1"};
    kvant_model *m = open_placed(FIXTURE_DATA "tiny4.gguf", &p);
    kvant_session *s = session_placed(m, &p, &types[0]);
    for (int32_t i = 0; i < 4; i++) {
        kvant_kv_row row = KVANT_KV_ROW_INIT;
        fixture_check(kvant_session_kv_row(s, i, &row));
        assert_int_equal(row.first_layer, i);
        assert_string_equal(row.device, want[i]);
    }
    kvant_session_close(s);
    kvant_model_close(m);
}

/* ---- failures */

static void expect_model_error(const char *devices, const char *split, const char *message) {
    kvant_model_options o = KVANT_MODEL_OPTIONS_INIT;
    o.devices = devices;
    o.split = split;
    kvant_model *m = NULL;
    assert_int_equal(kvant_model_open(&m, FIXTURE_DATA "tiny4.gguf", &o), KVANT_INVALID);
    assert_null(m);
    if (!strstr(kvant_last_error(), message)) fail_msg("the message is: %s", kvant_last_error());
}

static void expect_session_error(kvant_model *m, const char *kv_device, const char *message) {
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.kv_device = kv_device;
    kvant_session *s = NULL;
    assert_int_equal(kvant_session_create(&s, m, &o), KVANT_INVALID);
    if (!strstr(kvant_last_error(), message)) fail_msg("the message is: %s", kvant_last_error());
}

static void test_wrong_names(void **state) {
    (void)state;
    expect_model_error("cpu:0,gpu:0", NULL, "device \"gpu:0\": there is cpu:0 to cpu:7");
    expect_model_error("cpu:8", NULL, "device \"cpu:8\": there is cpu:0 to cpu:7");
    expect_model_error("cpu:", NULL, "device \"cpu:\": there is");
    expect_model_error("", NULL, "device \"\": there is");
    expect_model_error("cpu:0,cpu:00", NULL, "device \"cpu:00\" is listed twice");
    expect_model_error("cpu,cpu:0", NULL, "device \"cpu:0\" is listed twice");
    expect_model_error("cpu:0,cpu:1", "1", "split \"1\": 1 shares for 2 devices");
    expect_model_error("cpu:0,cpu:1", "1,2,3", "more shares than the 2 devices");
    expect_model_error("cpu:0,cpu:1", "0,0", "no device has a share");
    expect_model_error("cpu:0,cpu:1", "1,-1", "share \"-1\": must be a number from 0");
    expect_model_error("cpu:0,cpu:1", "1,x", "share \"x\"");
    kvant_model *m = open_placed(FIXTURE_DATA "tiny4.gguf", &placings[2]);
    expect_session_error(m, "cpu:2", "kv_device: device \"cpu:2\": the model is on cpu:0, cpu:1");
    expect_session_error(m, "gpu", "device \"gpu\": there is cpu:0 to cpu:7");
    expect_session_error(m, "7=cpu:1", "no such layer");
    expect_session_error(m, "1=cpu:5", "the model is on cpu:0, cpu:1");
    kvant_model_close(m);
}

/* Memory that runs out anywhere while a model is opened and run on two devices: a status, and the sequence as
 * it was. */
static void test_memory_runs_out(void **state) {
    (void)state;
    placing p = {"cpu:0,cpu:1", "1,3", "cpu:0", 2};
    bool complete = false;
    for (int64_t n = 0; !complete; n += 1 + n / 16) {
        kvant_model_options o = KVANT_MODEL_OPTIONS_INIT;
        kvant_session_options so = KVANT_SESSION_OPTIONS_INIT;
        kvant_model *m = NULL;
        kvant_session *s = NULL;
        o.n_threads = p.n_threads, o.devices = p.devices, o.split = p.split;
        so.n_ctx = 64, so.kv_device = p.kv_device;
        kv_alloc_fail_after(n);
        kvant_status status = kvant_model_open(&m, FIXTURE_DATA "tiny4.gguf", &o);
        if (!status) status = kvant_session_create(&s, m, &so);
        kvant_token token = 300;
        if (!status) status = kvant_eval(s, &(kvant_chunk){0, &token, 1, KVANT_LOGITS_LAST}, 1);
        kv_alloc_fail_after(-1);
        complete = status == KVANT_OK;
        if (!complete) assert_int_equal(status, KVANT_NO_MEMORY);
        if (s) assert_int_equal(kvant_seq_end(s, 0), complete ? 1 : 0);
        kvant_session_close(s);
        kvant_model_close(m);
    }
}

/* A cancel leaves the sequence as it was, on any number of devices; the next evaluation is right. */
static void test_cancel(void **state) {
    (void)state;
    kvant_model *m = open_placed(FIXTURE_DATA "tiny4.gguf", &placings[9]);
    kvant_session *s = session_placed(m, &placings[9], &types[0]);
    fixture_check(fixture_eval(s, m, 0, 0, 5, KVANT_LOGITS_NONE));
    kvant_session_cancel(s);
    assert_int_equal(fixture_eval(s, m, 0, 5, 3, KVANT_LOGITS_LAST), KVANT_CANCELLED);
    assert_int_equal(kvant_seq_end(s, 0), 5);
    kvant_session_resume(s);
    fixture_check(fixture_eval(s, m, 0, 5, 3, KVANT_LOGITS_LAST));
    assert_int_equal(kvant_seq_end(s, 0), 8);
    kvant_session_close(s);
    kvant_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_models),
        cmocka_unit_test(test_a_real_model),
        cmocka_unit_test(test_only_activations_cross),
        cmocka_unit_test(test_what_devices_hold_adds_up),
        cmocka_unit_test(test_kv_is_where_it_was_asked_for),
        cmocka_unit_test(test_wrong_names),
        cmocka_unit_test(test_memory_runs_out),
        cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
