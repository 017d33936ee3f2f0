/* test_base_threads: the pool under every size, with more threads than cores, with many short runs, barriers
 * and callers; the levels of instruction sets of base/cpu. */
#include "base/cpu.h"
#include "base/memory.h"
#include "base/threads.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_THREADS = 17, N_ITEMS = 1000, N_RUNS = 60 };

typedef struct job {
    kv_pool *pool;
    atomic_int calls[MAX_THREADS];
    atomic_int items[N_ITEMS];
    atomic_int late; /* items of a phase that were missing behind its barrier */
} job;

static void count_call(void *arg, int32_t thread) {
    job *j = arg;
    atomic_fetch_add(&j->calls[thread], 1);
}

static void take_items(void *arg, int32_t thread) {
    job *j = arg;
    (void)thread;
    for (int64_t i; (i = kv_pool_take(j->pool)) < N_ITEMS;) atomic_fetch_add(&j->items[i], 1);
}

/* Ten phases: nobody may see an item of a phase missing once past the barrier behind it. */
static void take_in_phases(void *arg, int32_t thread) {
    job *j = arg;
    for (int phase = 1; phase <= 10; phase++) {
        take_items(j, thread);
        kv_pool_barrier(j->pool);
        for (int i = 0; i < N_ITEMS; i += 37)
            if (atomic_load(&j->items[i]) != phase) atomic_fetch_add(&j->late, 1);
        kv_pool_barrier(j->pool);
    }
}

static void for_every_size(void (*body)(job *j, int32_t n_threads)) {
    for (int32_t n = 1; n <= MAX_THREADS; n++) {
        job j = {0};
        assert_int_equal(kv_pool_create(&j.pool, n), KVANT_OK);
        assert_int_equal(kv_pool_size(j.pool), n);
        body(&j, n);
        kv_pool_destroy(j.pool);
    }
}

static void many_runs(job *j, int32_t n) {
    for (int run = 0; run < N_RUNS; run++) kv_pool_run(j->pool, count_call, j);
    for (int32_t i = 0; i < MAX_THREADS; i++) assert_int_equal(j->calls[i], i < n ? N_RUNS : 0);
}

static void each_item_once(job *j, int32_t n) {
    (void)n;
    for (int run = 1; run <= 5; run++) {
        kv_pool_run(j->pool, take_items, j);
        for (int i = 0; i < N_ITEMS; i++) assert_int_equal(j->items[i], run);
    }
}

static void phases(job *j, int32_t n) {
    (void)n;
    kv_pool_run(j->pool, take_in_phases, j);
    assert_int_equal(j->late, 0);
    for (int i = 0; i < N_ITEMS; i++) assert_int_equal(j->items[i], 10);
}

static void test_every_thread_is_called_once_a_run(void **state) {
    (void)state;
    for_every_size(many_runs);
}

static void test_every_item_is_taken_once(void **state) {
    (void)state;
    for_every_size(each_item_once);
}

static void test_barrier(void **state) {
    (void)state;
    for_every_size(phases);
}

/* Workers do not pile up or get lost when the pool is made and destroyed without ever running. */
static void test_idle_pools(void **state) {
    (void)state;
    for (int i = 0; i < 50; i++) {
        kv_pool *pool = NULL;
        assert_int_equal(kv_pool_create(&pool, 4), KVANT_OK);
        kv_pool_destroy(pool);
    }
    kv_pool_destroy(NULL);
}

/* Plain writes of one run are visible to the next, on whichever thread. */
static void test_runs_are_ordered(void **state) {
    (void)state;
    job j = {0};
    assert_int_equal(kv_pool_create(&j.pool, 3), KVANT_OK);
    for (int run = 1; run <= N_RUNS; run++) {
        kv_pool_run(j.pool, take_items, &j);
        assert_int_equal(atomic_load_explicit(&j.items[run % N_ITEMS], memory_order_relaxed), run);
    }
    kv_pool_destroy(j.pool);
}

static void *run_often(void *arg) {
    job *j = arg;
    for (int run = 0; run < N_RUNS; run++) kv_pool_run(j->pool, count_call, j);
    return NULL;
}

static void test_callers_take_turns(void **state) {
    (void)state;
    enum { CALLERS = 3 };
    job j = {0};
    pthread_t callers[CALLERS];
    assert_int_equal(kv_pool_create(&j.pool, 4), KVANT_OK);
    for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_create(&callers[i], NULL, run_often, &j), 0);
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    for (int i = 0; i < 4; i++) assert_int_equal(j.calls[i], CALLERS * N_RUNS);
    kv_pool_destroy(j.pool);
}

static void test_sizes_that_are_refused(void **state) {
    (void)state;
    kv_pool *pool = NULL;
    static const int32_t sizes[] = {0, -1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(kv_pool_create(&pool, sizes[i]), KVANT_INVALID);
        assert_non_null(strstr(kv_last_error(), "threads"));
    }
    assert_null(pool);
}

static void test_out_of_memory(void **state) {
    (void)state;
    kv_pool *pool = NULL;
    for (int64_t n = 0; n < 5; n++) { /* the pool, its list, one block per worker */
        kv_alloc_fail_after(n);
        kv_status status = kv_pool_create(&pool, 4);
        kv_alloc_fail_after(-1);
        assert_int_equal(status, KVANT_NO_MEMORY);
        assert_null(pool);
    }
    assert_int_equal(kv_pool_create(&pool, 4), KVANT_OK);
    kv_pool_destroy(pool);
}

static void test_no_allocation_in_a_run(void **state) {
    (void)state;
    job j = {0};
    assert_int_equal(kv_pool_create(&j.pool, 2), KVANT_OK);
    kv_pool_run(j.pool, take_items, &j);
    int64_t before = kv_alloc_count();
    kv_pool_run(j.pool, take_items, &j);
    assert_int_equal(kv_alloc_count(), before);
    kv_pool_destroy(j.pool);
}

static void test_cpu_levels(void **state) {
    (void)state;
    static const char *const names[] = {"scalar", "avx2", "avx512", "neon"};
    unsigned have = kv_cpu_detect(), flags = 42;
    int usable = 0;
    assert_int_equal(kv_cpu_mask(&flags, NULL), KVANT_OK);
    assert_int_equal(flags, have);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        kv_status status = kv_cpu_mask(&flags, names[i]);
        if (status == KVANT_UNSUPPORTED) {
            assert_non_null(strstr(kv_last_error(), names[i]));
            continue;
        }
        assert_int_equal(status, KVANT_OK);
        assert_int_equal(flags & ~have, 0);
        assert_string_equal(kv_cpu_name(flags), names[i]);
        usable++;
    }
    assert_true(usable >= 1 && kv_cpu_count() >= 1);
    assert_int_equal(kv_cpu_mask(&flags, "scalar"), KVANT_OK);
    assert_int_equal(flags, KV_CPU_SCALAR);
}

static void test_cpu_level_unknown(void **state) {
    (void)state;
    unsigned flags = 42;
    assert_int_equal(kv_cpu_mask(&flags, "sse2"), KVANT_INVALID);
    assert_non_null(strstr(kv_last_error(), "scalar"));
    assert_int_equal(kv_cpu_mask(&flags, ""), KVANT_INVALID);
    assert_int_equal(flags, 42);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_thread_is_called_once_a_run),
        cmocka_unit_test(test_every_item_is_taken_once),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_idle_pools),
        cmocka_unit_test(test_runs_are_ordered),
        cmocka_unit_test(test_callers_take_turns),
        cmocka_unit_test(test_sizes_that_are_refused),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_no_allocation_in_a_run),
        cmocka_unit_test(test_cpu_levels),
        cmocka_unit_test(test_cpu_level_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
