/* random.h: a small, fast, seedable generator (xoshiro256**, D. Blackman and S. Vigna, 2018; seeded by
 * splitmix64). */
#pragma once

#include <stdint.h>

typedef struct kv_random {
    uint64_t s[4];
} kv_random;

void kv_random_init(kv_random *r, uint64_t seed);
uint64_t kv_random_u64(kv_random *r);
/* Uniform in [0, 1), 53 bits. */
double kv_random_unit(kv_random *r);
/* Standard normal (Box-Muller, one of the pair). */
float kv_random_normal(kv_random *r);
