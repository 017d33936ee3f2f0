/* cpu.h: what the processor can do, and the mask that hides some of it. */
#pragma once

#include "base/status.h"

typedef enum kv_cpu_flags {
    KV_CPU_SCALAR = 0,
    KV_CPU_AVX2 = 1 << 0,   /* with FMA and F16C */
    KV_CPU_AVX512 = 1 << 1, /* F, BW, DQ, VL and VNNI */
    KV_CPU_NEON = 1 << 2,
} kv_cpu_flags;

/* What this machine has (and the operating system saves). */
unsigned kv_cpu_detect(void);
/* Flags up to and including the named level ("scalar", "avx2", "avx512", "neon"; NULL = all), of those
 * detected. An unknown name is KVANT_INVALID and lists the known ones; a level the machine lacks is
 * KVANT_UNSUPPORTED. */
kv_status kv_cpu_mask(unsigned *flags, const char *name);
/* The name of the best level in `flags`. */
const char *kv_cpu_name(unsigned flags);
/* Cores this process may run on (affinity and cgroup quota), at least 1. */
int32_t kv_cpu_count(void);
