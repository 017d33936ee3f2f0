/* Threads: results are the same bits for any number of threads, also with more threads than cores; a cancel
 * from another thread stops a prefill and leaves the sequence as it was; two sessions on two threads share
 * one model. The sanitizer runs look for races here.
 */
#include "base/clock.h"
#include "base/cpu.h"
#include "thread_law.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { HANG_SECONDS = 550 };

/* ---- any number of threads */

static void test_same_bits_for_any_number_of_threads(void **state) {
    (void)state;
    static const int32_t counts[] = {1, 2, 3, 5};
    law_same_bits(FIXTURE_DATA "tiny4.gguf", counts, 4, LAW_MODES);
}

static void test_more_threads_than_cores(void **state) {
    (void)state;
    const int32_t counts[] = {1, 4 * kv_cpu_count()};
    int64_t start = kv_now_ns();
    law_same_bits(FIXTURE_DATA "tiny1.gguf", counts, 2, 1);
    assert_true(kv_seconds_since(start) < HANG_SECONDS);
}

/* ---- cancelling */

typedef struct canceller {
    kvant_session *session;
    atomic_bool running; /* the evaluation has begun */
    int64_t delay_us;
} canceller;

static void *cancel_soon(void *arg) {
    canceller *c = arg;
    while (!atomic_load(&c->running)) usleep(50);
    usleep((useconds_t)c->delay_us);
    kvant_session_cancel(c->session);
    return NULL;
}

static void cancel_one(kvant_session *s, const kvant_model *m, const float *want, int64_t delay_us,
                       int32_t *n_cancelled) {
    canceller c = {.session = s, .delay_us = delay_us};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &c), 0);
    atomic_store(&c.running, true);
    kvant_status status = fixture_eval(s, m, 0, 40, 400, KVANT_LOGITS_LAST);
    pthread_join(thread, NULL);
    kvant_session_resume(s);
    if (status == KVANT_CANCELLED) {
        (*n_cancelled)++;
        assert_int_equal(kvant_n_logits(s), 0);
    } else {
        fixture_check(status);
        fixture_check(kvant_seq_remove(s, 0, 40, -1));
    }
    assert_int_equal(kvant_seq_end(s, 0), 40);
    assert_int_equal(kvant_seq_tokens(s, 0), 40);
    /* the same continuation as before */
    fixture_check(fixture_eval(s, m, 0, 40, 1, KVANT_LOGITS_LAST));
    assert_memory_equal(kvant_logits(s, 0), want, (size_t)fixture_n_vocab(m) * sizeof *want);
    fixture_check(kvant_seq_remove(s, 0, 40, -1));
}

static void test_cancel_from_another_thread(void **state) {
    (void)state;
    kvant_model *m = fixture_open(FIXTURE_DATA "tiny4.gguf", 3);
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.n_ctx = 512;
    o.n_batch = 32;
    kvant_session *s = fixture_session(m, o);
    fixture_check(fixture_eval(s, m, 0, 0, 40, KVANT_LOGITS_NONE));
    fixture_check(fixture_eval(s, m, 0, 40, 1, KVANT_LOGITS_LAST));
    size_t bytes = (size_t)fixture_n_vocab(m) * sizeof(float);
    float *want = malloc(bytes);
    assert_non_null(want);
    memcpy(want, kvant_logits(s, 0), bytes);
    fixture_check(kvant_seq_remove(s, 0, 40, -1));
    int32_t n_cancelled = 0;
    for (int64_t delay = 0; delay < 4000; delay += 250) cancel_one(s, m, want, delay, &n_cancelled);
    print_message("  %d of 16 evaluations were cancelled\n", n_cancelled);
    assert_true(n_cancelled > 0);
    free(want);
    kvant_session_close(s);
    kvant_model_close(m);
}

/* A flag that is set stays set until it is taken back. */
static void test_cancel_before_an_evaluation(void **state) {
    (void)state;
    kvant_model *m = fixture_open(FIXTURE_DATA "tiny4.gguf", 1);
    kvant_session *s = fixture_session(m, (kvant_session_options)KVANT_SESSION_OPTIONS_INIT);
    kvant_session_cancel(s);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_eval(s, m, 0, 0, 3, KVANT_LOGITS_LAST), KVANT_CANCELLED);
    assert_int_equal(kvant_seq_end(s, 0), 0);
    kvant_session_resume(s);
    fixture_check(fixture_eval(s, m, 0, 0, 3, KVANT_LOGITS_LAST));
    kvant_session_close(s);
    kvant_model_close(m);
}

/* ---- two sessions, two threads, one model */

typedef struct user {
    kvant_model *model;
    const float *want;
    int32_t n_wrong;
} user;

static void *use_model(void *arg) {
    user *u = arg;
    for (int i = 0; i < 3; i++) {
        float *got = law_logits(u->model, "f16", KVANT_ACT_FAST);
        u->n_wrong +=
            memcmp(got, u->want, (1 + LAW_DECODE) * (size_t)fixture_n_vocab(u->model) * sizeof *got) != 0;
        free(got);
    }
    return NULL;
}

static void ignore_log(void *data, kvant_log_level level, const char *message) {
    (void)data, (void)level, (void)message;
}

static void test_two_sessions_share_a_model(void **state) {
    (void)state;
    kvant_set_log(ignore_log, NULL);
    kvant_model *m = fixture_open(FIXTURE_DATA "tiny4.gguf", 3);
    float *want = law_logits(m, "f16", KVANT_ACT_FAST);
    user users[2] = {{.model = m, .want = want}, {.model = m, .want = want}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, use_model, &users[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(users[i].n_wrong, 0);
    free(want);
    kvant_model_close(m);
    kvant_set_log(NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_for_any_number_of_threads),
        cmocka_unit_test(test_more_threads_than_cores),
        cmocka_unit_test(test_cancel_from_another_thread),
        cmocka_unit_test(test_cancel_before_an_evaluation),
        cmocka_unit_test(test_two_sessions_share_a_model),
    };
    alarm(HANG_SECONDS); /* a hang ends the process */
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
