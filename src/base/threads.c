/* threads.c: the pool. Two places to wait: workers for the next run, and everybody at a barrier. Both are a
 * counter that changes (futex word), watched for a while and then slept on. */
#define _GNU_SOURCE
#include "base/threads.h"

#include "base/cpu.h"
#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 500, MAX_THREADS = 1024 };

typedef struct event {
    _Alignas(64) atomic_uint count; /* changes when it happens */
    atomic_int sleepers;
} event;

struct kv_pool {
    event start, barrier;
    _Alignas(64) atomic_int arrived; /* at the barrier, this round */
    _Alignas(64) atomic_int_least64_t next;
    pthread_mutex_t turn; /* one run at a time */
    int32_t n_threads, n_started;
    int spins; /* 0 where the threads outnumber the cores: the one waited for needs this one's */
    pthread_t *threads;
    kv_pool_fn fn; /* of the current run; NULL tells the workers to end */
    void *arg;
};

typedef struct worker {
    kv_pool *pool;
    int32_t thread;
} worker;

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void event_wait(event *e, unsigned seen, int spins) {
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(&e->count, memory_order_acquire) != seen) return;
        relax();
    }
    atomic_fetch_add(&e->sleepers, 1);
    while (atomic_load(&e->count) == seen)
        syscall(SYS_futex, &e->count, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&e->sleepers, 1);
}

static void event_signal(event *e) {
    atomic_fetch_add(&e->count, 1);
    if (atomic_load(&e->sleepers)) syscall(SYS_futex, &e->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void kv_pool_barrier(kv_pool *pool) {
    unsigned seen = atomic_load_explicit(&pool->barrier.count, memory_order_relaxed);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 < pool->n_threads) {
        event_wait(&pool->barrier, seen, pool->spins);
        return;
    }
    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    event_signal(&pool->barrier);
}

int64_t kv_pool_take(kv_pool *pool) {
    return atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
}

static void *work(void *arg) {
    worker w = *(worker *)arg;
    kv_free(arg);
    for (unsigned seen = 0;; seen++) {
        event_wait(&w.pool->start, seen, w.pool->spins);
        if (!w.pool->fn) return NULL;
        w.pool->fn(w.pool->arg, w.thread);
        kv_pool_barrier(w.pool);
    }
}

void kv_pool_run(kv_pool *pool, kv_pool_fn fn, void *arg) {
    pthread_mutex_lock(&pool->turn);
    pool->fn = fn;
    pool->arg = arg;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    event_signal(&pool->start);
    fn(arg, 0);
    kv_pool_barrier(pool);
    pthread_mutex_unlock(&pool->turn);
}

static kv_status start_worker(kv_pool *pool, int32_t thread) {
    worker *w = kv_alloc(1, sizeof *w);
    if (!w) return KVANT_NO_MEMORY;
    *w = (worker){pool, thread};
    int error = pthread_create(&pool->threads[thread], NULL, work, w);
    if (!error) return KVANT_OK;
    kv_free(w);
    return kv_fail(KVANT_FAILED, "cannot start thread %d: %s", thread, strerror(error));
}

kv_status kv_pool_create(kv_pool **out, int32_t n_threads) {
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return kv_fail(KVANT_INVALID, "threads: %d, must be 1 to %d", n_threads, MAX_THREADS);
    kv_pool *pool = kv_alloc_aligned(1, sizeof *pool);
    if (!pool) return KVANT_NO_MEMORY;
    pthread_mutex_init(&pool->turn, NULL);
    pool->n_threads = n_threads;
    pool->n_started = 1;
    pool->spins = n_threads <= kv_cpu_count() ? SPINS : 0;
    pool->threads = kv_alloc((size_t)n_threads, sizeof *pool->threads);
    kv_status status = pool->threads ? KVANT_OK : KVANT_NO_MEMORY;
    for (; !status && pool->n_started < n_threads; pool->n_started += !status)
        status = start_worker(pool, pool->n_started);
    if (status)
        kv_pool_destroy(pool);
    else
        *out = pool;
    return status;
}

void kv_pool_destroy(kv_pool *pool) {
    if (!pool) return;
    pool->fn = NULL;
    event_signal(&pool->start);
    for (int32_t i = 1; i < pool->n_started; i++) pthread_join(pool->threads[i], NULL);
    pthread_mutex_destroy(&pool->turn);
    kv_free(pool->threads);
    kv_free(pool);
}

int32_t kv_pool_size(const kv_pool *pool) { return pool->n_threads; }
