/* tools_measure.c: how fast this machine reads memory. The buffer is written first, because pages never
 * written are all the same page of zeros, and is larger than the caches that threads may share. */
#include "base/clock.h"
#include "base/cpu.h"
#include "base/memory.h"
#include "base/threads.h"
#include "kvant_tools.h"

#include <stdatomic.h>
#include <string.h>

enum { MOST_BYTES = 128 << 20, LEAST_BYTES = 32 << 20, LANES = 32 };

typedef struct reading {
    uint8_t *at;
    size_t bytes;
    int32_t n_threads;
    atomic_ullong sum; /* of all threads, so that the reads cannot be left out */
} reading;

/* A thread's part, a multiple of a step of sum_part. */
static uint8_t *part_of(const reading *r, int32_t thread, size_t *bytes) {
    *bytes = r->bytes / (size_t)r->n_threads / (LANES * sizeof(uint64_t)) * (LANES * sizeof(uint64_t));
    return r->at + (size_t)thread * *bytes;
}

static void fill_part(void *arg, int32_t thread) {
    size_t bytes;
    uint8_t *part = part_of(arg, thread, &bytes);
    memset(part, thread + 1, bytes);
}

/* Independent sums side by side: the compiler turns them into whichever vectors it may use. */
static void sum_part(void *arg, int32_t thread) {
    reading *r = arg;
    size_t bytes;
    const uint64_t *part = (const uint64_t *)(const void *)part_of(r, thread, &bytes);
    uint64_t sums[LANES] = {0}, sum = 0;
    for (size_t i = 0; i < bytes / sizeof *part; i += LANES)
        for (int lane = 0; lane < LANES; lane++) sums[lane] += part[i + (size_t)lane];
    for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
    atomic_fetch_add(&r->sum, sum);
}

/* As much as the system gives, down to LEAST_BYTES. */
static kv_status map_buffer(reading *r) {
    for (size_t bytes = MOST_BYTES; bytes >= LEAST_BYTES && !r->at; bytes /= 2) {
        r->at = kv_pages_map(bytes);
        r->bytes = bytes;
    }
    return r->at ? KVANT_OK : KVANT_NO_MEMORY;
}

static double best_rate(reading *r, kv_pool *pool, double seconds) {
    enum { LEAST_PASSES = 3 };
    double best = 0;
    kv_pool_run(pool, fill_part, r);
    int64_t start = kv_now_ns();
    for (int pass = 0; pass < LEAST_PASSES || kv_seconds_since(start) < seconds; pass++) {
        int64_t pass_start = kv_now_ns();
        kv_pool_run(pool, sum_part, r);
        double rate = (double)r->bytes / kv_seconds_since(pass_start);
        if (rate > best) best = rate;
    }
    return best;
}

kvant_status kvant_measure_bandwidth(double *bytes_per_second, int32_t n_threads, double seconds) {
    if (n_threads < 0 || n_threads > 1024)
        return kv_fail(KVANT_INVALID, "%d threads, not from 0 to 1024", n_threads);
    reading r = {.n_threads = n_threads ? n_threads : kv_cpu_count()};
    kv_pool *pool = NULL;
    kv_status status = kv_pool_create(&pool, r.n_threads);
    if (!status) status = map_buffer(&r);
    if (!status) *bytes_per_second = best_rate(&r, pool, seconds < 10 ? seconds : 10);
    if (r.at) kv_pages_unmap(r.at, r.bytes);
    kv_pool_destroy(pool);
    return status;
}
