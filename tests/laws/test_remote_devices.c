/* Whole models on devices that the host cannot reach and that run nothing before they are waited for
 * (remote_device.h): nothing above core/device.h assumes a host address, or that submit has run. The logits
 * of one such device, of two, and of one beside a CPU are the same bits where references compute them, and
 * those of the CPU within rounding; shifts of both kinds cross nothing; saved sequences go from one to the
 * other.
 */
#include "engine/engine.h"
#include "remote_device.h"
#include "session_fixture.h"

#include <math.h>
#include <unistd.h>

enum { N_PROMPT = 11, N_LOGITS = 5 };

/* As kvant_model_open, on the devices given. */
static kvant_model *open_on(const char *path, kv_device *const *devices, int32_t n, const int32_t *shares) {
    kvant_model *m = kv_alloc(1, sizeof *m);
    kv_gguf *gguf = NULL;
    kv_pool *pool = NULL;
    assert_non_null(m);
    fixture_check(kv_gguf_open(&gguf, path));
    fixture_check(kv_tokenizer_create(&m->tokenizer, gguf));
    fixture_check(kv_pool_create(&pool, 1));
    for (int32_t i = 0; i < n; i++) m->devices[m->n_devices++] = devices[i];
    m->name = kv_strdup("remote");
    m->architecture = kv_strdup("any");
    m->description = kv_strdup("on remote devices");
    assert_true(m->name && m->architecture && m->description);
    kv_model_source source = {.gguf = gguf,
                              .split = {.devices = devices, .shares = shares, .n_devices = n},
                              .pool = pool,
                              .n_vocab = kv_tokenizer_size(m->tokenizer)};
    fixture_check(kv_model_load(&m->model, &source));
    kv_pool_destroy(pool);
    return m;
}

typedef struct result {
    float *logits;
    size_t n;
} result;

static void note(result *r, const kvant_model *m, const kvant_session *s) {
    size_t n_vocab = (size_t)fixture_n_vocab(m);
    if (!r->logits) r->logits = calloc(N_LOGITS * n_vocab, sizeof(float));
    assert_non_null(r->logits);
    memcpy(r->logits + r->n, kvant_logits(s, 0), n_vocab * sizeof(float));
    r->n += n_vocab;
}

static kvant_session *open_session_on(kvant_model *m, const char *type_k, kvant_shift shift) {
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.n_ctx = 64;
    o.n_sequences = 2;
    o.type_k = type_k;
    o.type_v = "f32";
    o.act = KVANT_ACT_F32;
    o.shift = shift;
    return fixture_session(m, o);
}

static result play(kvant_model *m, const char *type_k, kvant_shift shift) {
    result r = {0};
    kvant_session *s = open_session_on(m, type_k, shift);
    fixture_check(fixture_eval(s, m, 0, 0, N_PROMPT, KVANT_LOGITS_LAST));
    note(&r, m, s);
    fixture_check(fixture_eval(s, m, 0, N_PROMPT, 1, KVANT_LOGITS_LAST));
    note(&r, m, s);
    kvant_session_info info = KVANT_SESSION_INFO_INIT;
    kvant_session_get_info(s, &info);
    int64_t crossed = info.crossed_bytes;
    fixture_check(kvant_seq_copy(s, 1, 0));
    fixture_check(kvant_seq_drop(s, 1, 2, 5));
    kvant_session_get_info(s, &info);
    assert_int_equal(info.crossed_bytes, crossed);
    fixture_check(fixture_eval(s, m, 1, 20, 2, KVANT_LOGITS_LAST));
    note(&r, m, s);
    kvant_session_cancel(s);
    assert_int_equal(fixture_eval(s, m, 0, 30, 3, KVANT_LOGITS_LAST), KVANT_CANCELLED);
    kvant_session_resume(s);
    assert_int_equal(kvant_seq_end(s, 0), N_PROMPT + 1);
    fixture_check(fixture_eval(s, m, 0, 30, 2, KVANT_LOGITS_LAST)); /* the copy's shift did not touch it */
    note(&r, m, s);
    kvant_session_close(s);
    return r;
}

static double distance(const result *a, const result *b) {
    double most = 0;
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) most = fmax(most, fabs((double)a->logits[i] - (double)b->logits[i]));
    return most;
}

/* `bound`: rounding; more where a number of a quantized key may round the other way. */
static void check_model(const char *path, const char *type_k, kvant_shift shift, double bound) {
    remote far[2];
    kv_device *devices[2];
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "far:%d", i);
        remote_open(&far[i], name);
        devices[i] = &far[i].device;
    }
    static const int32_t shares[] = {1, 3};
    kvant_model *models[] = {open_on(path, devices, 1, NULL), open_on(path, devices, 2, shares),
                             fixture_open(path, 1)};
    result r[3];
    for (int i = 0; i < 3; i++) r[i] = play(models[i], type_k, shift);
    assert_memory_equal(r[0].logits, r[1].logits, r[0].n * sizeof(float));
    double d = distance(&r[0], &r[2]);
    print_message("  largest difference from the CPU: %.2g\n", d);
    assert_true(d < bound);
    for (int i = 0; i < 3; i++) {
        free(r[i].logits);
        kvant_model_close(models[i]);
    }
    for (int i = 0; i < 2; i++) remote_close(&far[i]);
}

static void test_lazy(void **state) {
    (void)state;
    check_model(FIXTURE_DATA "tiny4.gguf", "f32", KVANT_SHIFT_LAZY, 1e-4);
    check_model(FIXTURE_DATA "tiny-out.gguf", "q8_0", KVANT_SHIFT_LAZY, 5e-3);
}

static void test_eager(void **state) {
    (void)state;
    check_model(FIXTURE_DATA "tiny4.gguf", "f32", KVANT_SHIFT_EAGER, 1e-4);
    check_model(FIXTURE_DATA "tiny4.gguf", "q4_0", KVANT_SHIFT_EAGER, 5e-2);
}

/* A device of another kind beside the CPU: copies go through the host's memory. */
static void test_beside_the_cpu(void **state) {
    (void)state;
    remote far;
    kv_device *cpu = NULL;
    remote_open(&far, "far:0");
    fixture_check(kv_cpu_device_create(&cpu, 0, 2, 0));
    kv_device *devices[] = {cpu, &far.device};
    kvant_model *m = open_on(FIXTURE_DATA "tiny4.gguf", devices, 2, NULL),
                *plain = fixture_open(FIXTURE_DATA "tiny4.gguf", 1);
    result a = play(m, "f32", KVANT_SHIFT_LAZY), b = play(plain, "f32", KVANT_SHIFT_LAZY);
    double d = distance(&a, &b);
    print_message("  largest difference from the CPU alone: %.2g\n", d);
    assert_true(d < 1e-4 && far.n_runs > 0 && far.downloaded > 0);
    free(a.logits);
    free(b.logits);
    kvant_model_close(m);
    kvant_model_close(plain);
    remote_close(&far);
}

/* What one device has computed goes on, from a file, on others. */
static void test_saved_sequences(void **state) {
    (void)state;
    remote far[2];
    remote_open(&far[0], "far:0");
    remote_open(&far[1], "far:1");
    kv_device *devices[] = {&far[0].device, &far[1].device};
    const char *path = FIXTURE_DATA "tiny4.gguf";
    kvant_model *models[] = {open_on(path, devices, 2, NULL), open_on(path, devices, 1, NULL)};
    char file[] = "remote_devices_XXXXXX";
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    result r[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        kvant_session *s = open_session_on(models[i], "q8_0", KVANT_SHIFT_LAZY);
        if (i == 0) {
            fixture_check(fixture_eval(s, models[0], 0, 0, N_PROMPT, KVANT_LOGITS_NONE));
            fixture_check(kvant_seq_drop(s, 0, 1, 4));
            fixture_check(kvant_seq_save(s, 0, file));
        } else {
            fixture_check(kvant_seq_load(s, 0, file));
            assert_int_equal(kvant_seq_end(s, 0), N_PROMPT - 3);
        }
        fixture_check(fixture_eval(s, models[i], 0, 40, 2, KVANT_LOGITS_LAST));
        note(&r[i], models[i], s);
        kvant_session_close(s);
    }
    assert_memory_equal(r[0].logits, r[1].logits, r[0].n * sizeof(float));
    for (int i = 0; i < 2; i++) {
        free(r[i].logits);
        kvant_model_close(models[i]);
    }
    for (int i = 0; i < 2; i++) remote_close(&far[i]);
    unlink(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lazy),
        cmocka_unit_test(test_eager),
        cmocka_unit_test(test_beside_the_cpu),
        cmocka_unit_test(test_saved_sequences),
    };
    return cmocka_run_group_tests_name("remote_devices", tests, NULL, NULL);
}
