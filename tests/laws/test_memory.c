/* Memory that follows from the options alone: a quantized cache takes its own bytes and nothing beside them,
 * scratch does not depend on the size of the context, and neither shifts nor texts without end make the
 * process grow. Each peak is that of a process of its own.
 * ctest: slow */
#define _GNU_SOURCE
#include "session_fixture.h"

#include "base/clock.h"
#include "engine/engine.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, N_CTX = 32 << 10, CHUNK = 512, N_SEQUENCES = N_CTX / CHUNK };

static kvant_session *open_session(kvant_model *m, const char *k, const char *v, int32_t n_ctx) {
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.n_ctx = n_ctx;
    o.n_sequences = N_SEQUENCES;
    o.n_batch = CHUNK;
    o.type_k = k;
    o.type_v = v;
    return fixture_session(m, o);
}

/* Every cell of the context in use: sequences of one chunk each, so that it is quick. */
static void fill(kvant_session *s, kvant_model *m, int32_t n_ctx) {
    for (int32_t i = 0; i < n_ctx / CHUNK; i++)
        fixture_check(fixture_eval(s, m, i, 0, CHUNK, KVANT_LOGITS_LAST));
    for (int32_t i = 0; i < n_ctx / CHUNK; i++) { /* and steps of one token */
        fixture_check(kvant_seq_remove(s, i, CHUNK - 1, -1));
        fixture_check(fixture_eval(s, m, i, CHUNK - 1, 1, KVANT_LOGITS_LAST));
    }
}

/* Peak of a process that fills a context, then drops and reads a page n_shifts times, in bytes. */
static int64_t peak_of(const char *k, const char *v, int32_t n_ctx, int32_t n_shifts) {
    struct rusage usage;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        kvant_model *m = fixture_open(FIXTURE_DATA "tiny1.gguf", 1);
        kvant_session *s = open_session(m, k, v, n_ctx);
        fill(s, m, n_ctx);
        for (int32_t i = 0; i < n_shifts; i++) {
            fixture_check(kvant_seq_make_room(s, 0, 64, KVANT_CONTEXT_WINDOW, 4, NULL));
            fixture_check(fixture_eval(s, m, 0, i, 64, KVANT_LOGITS_LAST));
        }
        _exit(0);
    }
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    assert_int_equal(status, 0);
    return (int64_t)usage.ru_maxrss * 1024;
}

static int64_t kv_bytes(const char *k, const char *v) {
    kvant_model *m = fixture_open(FIXTURE_DATA "tiny1.gguf", 1);
    kvant_session *s = open_session(m, k, v, N_CTX);
    kvant_session_info info = KVANT_SESSION_INFO_INIT;
    kvant_session_get_info(s, &info);
    kvant_session_close(s);
    kvant_model_close(m);
    return info.kv_bytes_total;
}

/* What a process needs without a context worth the name: its constant. */
static int64_t constant_of(const char *k, const char *v) { return peak_of(k, v, CHUNK, 0); }

static void check_peak(const char *k, const char *v, int64_t allowed) {
    int64_t constant = constant_of(k, v), peak = peak_of(k, v, N_CTX, 0);
    print_message("%s/%s: peak %.1f MiB, of which %.1f MiB for %d cells; KV %.1f MiB\n", k, v,
                  (double)peak / MIB, (double)(peak - constant) / MIB, N_CTX, (double)kv_bytes(k, v) / MIB);
    assert_true(peak - constant <= allowed);
    assert_true(peak - constant >= kv_bytes(k, v) * 9 / 10); /* or nothing was measured */
}

/* Two counts a cell for the books. */
static void test_peak(void **state) {
    (void)state;
    int64_t f16 = kv_bytes("f16", "f16"), books = 2 * MIB;
    assert_true(f16 >= 8 * MIB);
    check_peak("f16", "f16", f16 + books);
    check_peak("q8_0", "q8_0", f16 * 6 / 10 + books);
    check_peak("q8_0", "q4_0", f16 * 6 / 10 * 3 / 4 + books);
}

static void test_shifts_do_not_grow(void **state) {
    (void)state;
    int64_t still = peak_of("q8_0", "q4_0", 2048, 0), few = peak_of("q8_0", "q4_0", 2048, 10),
            many = peak_of("q8_0", "q4_0", 2048, 1000);
    print_message("peak %.1f MiB without shifts, %.1f with 10, %.1f with 1000\n", (double)still / MIB,
                  (double)few / MIB, (double)many / MIB);
    assert_true(many <= few + MIB / 2);
    assert_true(few <= still + 2 * MIB); /* a plan for 64 tokens */
}

static int64_t scratch_of(kvant_model *m, const char *k, const char *v, int32_t n_ctx) {
    kvant_session *s = open_session(m, k, v, n_ctx);
    kvant_session_info info = KVANT_SESSION_INFO_INIT;
    fill(s, m, 2 * CHUNK);
    kvant_session_get_info(s, &info);
    kvant_session_close(s);
    assert_true(info.scratch_bytes > 0);
    return info.scratch_bytes;
}

static void test_scratch(void **state) {
    (void)state;
    kvant_model *m = fixture_open(FIXTURE_DATA "tiny1.gguf", 1);
    static const char *const types[][2] = {
        {"f16", "f16"}, {"q8_0", "q8_0"}, {"q4_0", "q4_0"}, {"f32", "q5_1"}};
    for (int i = 0; i < 4; i++) {
        int64_t a = scratch_of(m, types[i][0], types[i][1], 8 << 10),
                b = scratch_of(m, types[i][0], types[i][1], 32 << 10);
        print_message("%s/%s: scratch %.2f MiB at 8 Ki, %.2f at 32 Ki\n", types[i][0], types[i][1],
                      (double)a / MIB, (double)b / MIB);
        assert_true(b <= a + MIB);
    }
    kvant_model_close(m);
}

static int64_t resident_pages(void) {
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    int n = fscanf(f, "%ld %ld", &size, &resident);
    fclose(f);
    return n == 2 ? resident : 0;
}

/* ---- a shift of all there is */

/* 128 Ki cells of a sequence, not computed: a shift that leaves keys alone does not look at them. */
static void test_shift_at_128_ki(void **state) {
    (void)state;
    enum { CELLS = 128 << 10, STEPS = 1000 };
    kvant_model *m = fixture_open(FIXTURE_DATA "tiny1.gguf", 1);
    kvant_session *s = open_session(m, "q8_0", "q4_0", CELLS);
    for (int32_t i = 0; i < CELLS / CHUNK; i++)
        fixture_check(kv_cache_append(s->cache, &(kv_cache_part){0, CHUNK}, 1));
    int64_t pages = resident_pages(), most = 0, start = kv_now_ns(), allocs = kv_alloc_count();
    for (int32_t i = 0; i < STEPS; i++) {
        int64_t before = kv_now_ns();
        fixture_check(kvant_seq_drop(s, 0, 4, 4 + 64));
        if (kv_now_ns() - before > most) most = kv_now_ns() - before;
    }
    assert_int_equal(kv_alloc_count() - allocs, 0);
    print_message("a shift of %d cells: %.1f us on average, %.1f at most\n", CELLS,
                  kv_seconds_since(start) / STEPS * 1e6, (double)most * 1e-3);
    assert_int_equal(kvant_seq_tokens(s, 0), CELLS - STEPS * 64);
    assert_in_range(kv_cache_frames(s->cache, 0), 1, 2);
    int64_t grown = (resident_pages() - pages) * sysconf(_SC_PAGESIZE);
    print_message("and %.0f KiB more, code among them\n", (double)grown / 1024);
    assert_true(grown < MIB / 4);
    kvant_session_close(s);
    kvant_model_close(m);
}

/* ---- a text without end */

typedef struct watch {
    int32_t n;
    int64_t rss_early, rss_late; /* pages */
} watch;

static bool count_token(void *user, kvant_token token) {
    watch *w = user;
    (void)token;
    if (++w->n == 2000) w->rss_early = resident_pages();
    if (w->n == 20000) w->rss_late = resident_pages();
    return true;
}

static void check_endless(kvant_context_policy policy, const char *k, const char *v) {
    kvant_model *m = fixture_open(FIXTURE_DATA "tiny4.gguf", 1);
    kvant_session *s = open_session(m, k, v, 256);
    kvant_sampler *sampler = NULL;
    watch w = {0};
    kvant_generate_options o = KVANT_GENERATE_OPTIONS_INIT;
    kvant_generate_result r = KVANT_GENERATE_RESULT_INIT;
    kvant_token prompt = fixture_token(m, 1);
    fixture_check(kvant_sampler_create(&sampler, m, NULL));
    o.context = policy;
    o.max_tokens = 20000;
    o.n_keep = 4;
    o.ignore_end = true;
    o.token = count_token;
    o.user = &w;
    fixture_check(kvant_generate(s, 0, sampler, &prompt, 1, &o, &r));
    assert_int_equal(r.finish, KVANT_FINISH_LENGTH);
    assert_int_equal(w.n, 20000);
    assert_in_range(kvant_seq_tokens(s, 0), 100, 256);
    if (!w.rss_early)
        print_message("no /proc/self/statm: growth is not measured\n");
    else
        assert_true((w.rss_late - w.rss_early) * sysconf(_SC_PAGESIZE) < MIB / 4);
    kvant_sampler_close(sampler);
    kvant_session_close(s);
    kvant_model_close(m);
}

static void test_twenty_thousand_tokens(void **state) {
    (void)state;
    check_endless(KVANT_CONTEXT_WINDOW, "q8_0", "q4_0");
    check_endless(KVANT_CONTEXT_SHIFT, "q8_0", "q4_0");
    check_endless(KVANT_CONTEXT_WINDOW, "f16", "f16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peak),
        cmocka_unit_test(test_shifts_do_not_grow),
        cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_shift_at_128_ki),
        cmocka_unit_test(test_twenty_thousand_tokens),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
