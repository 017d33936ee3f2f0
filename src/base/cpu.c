/* cpu.c: feature detection through the compiler's cpuid support, and the table of levels. */
#define _GNU_SOURCE
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned flag, all; /* the level's own flag, and every flag it includes */
} levels[] = {
    {"scalar", KV_CPU_SCALAR, KV_CPU_SCALAR},
    {"neon", KV_CPU_NEON, KV_CPU_NEON},
    {"avx2", KV_CPU_AVX2, KV_CPU_AVX2},
    {"avx512", KV_CPU_AVX512, KV_CPU_AVX2 | KV_CPU_AVX512},
};
enum { N_LEVELS = sizeof levels / sizeof *levels };

unsigned kv_cpu_detect(void) {
    unsigned flags = KV_CPU_SCALAR;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) flags |= KV_CPU_AVX2;
    if ((flags & KV_CPU_AVX2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni"))
        flags |= KV_CPU_AVX512;
#elif defined(__aarch64__)
    flags |= KV_CPU_NEON;
#endif
    return flags;
}

kv_status kv_cpu_mask(unsigned *flags, const char *name) {
    unsigned have = kv_cpu_detect();
    if (!name) {
        *flags = have;
        return KVANT_OK;
    }
    for (int i = 0; i < N_LEVELS; i++) {
        if (strcmp(levels[i].name, name)) continue;
        if ((levels[i].flag & have) != levels[i].flag)
            return kv_fail(KVANT_UNSUPPORTED, "cpu mask %s: this processor has only %s", name,
                           kv_cpu_name(have));
        *flags = have & levels[i].all;
        return KVANT_OK;
    }
    return kv_fail(KVANT_INVALID, "cpu mask \"%s\": must be scalar, avx2, avx512 or neon", name);
}

const char *kv_cpu_name(unsigned flags) {
    const char *best = levels[0].name;
    for (int i = 1; i < N_LEVELS; i++)
        if (levels[i].flag & flags) best = levels[i].name;
    return best;
}

/* Whole cores of the cgroup's quota ("max 100000" or "200000 100000"), or `limit` if there is none. */
static int32_t cgroup_quota(int32_t limit) {
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!file) return limit;
    long long quota, period;
    if (fscanf(file, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
        long long cores = (quota + period - 1) / period;
        if (cores < limit) limit = (int32_t)cores;
    }
    fclose(file);
    return limit;
}

int32_t kv_cpu_count(void) {
    cpu_set_t set;
    int32_t n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    n = cgroup_quota(n);
    return n < 1 ? 1 : n;
}
