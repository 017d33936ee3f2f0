/* threads.h: one pool of threads that run the same function side by side. Waiting spins for a few
 * microseconds, which is what a step of a small model takes, and then sleeps, so that a busy machine slows
 * down in proportion only. */
#pragma once

#include "base/status.h"

typedef struct kv_pool kv_pool;

/* `n_threads` >= 1 counts the caller of kv_pool_run. */
kv_status kv_pool_create(kv_pool **out, int32_t n_threads);
void kv_pool_destroy(kv_pool *pool);
int32_t kv_pool_size(const kv_pool *pool);

/* Runs fn(arg, thread) for thread = 0 .. size-1, thread 0 being the caller, and returns when all have.
 * Callers on different threads take turns. Not to be called from inside fn. */
typedef void (*kv_pool_fn)(void *arg, int32_t thread);
void kv_pool_run(kv_pool *pool, kv_pool_fn fn, void *arg);
/* Inside fn, by all threads: none goes on before all have come. */
void kv_pool_barrier(kv_pool *pool);
/* Inside fn: the next number 0, 1, 2, ... that no thread has taken since the run began or the last barrier.
 */
int64_t kv_pool_take(kv_pool *pool);
