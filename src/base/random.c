/* random.c: xoshiro256**. */
#include "base/random.h"

#include <math.h>

static uint64_t rotate_left(uint64_t x, int k) { return x << k | x >> (64 - k); }

void kv_random_init(kv_random *r, uint64_t seed) {
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        r->s[i] = z ^ z >> 31;
    }
}

uint64_t kv_random_u64(kv_random *r) {
    uint64_t *s = r->s, result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double kv_random_unit(kv_random *r) { return (double)(kv_random_u64(r) >> 11) * 0x1p-53; }

float kv_random_normal(kv_random *r) {
    double u = 1.0 - kv_random_unit(r), v = kv_random_unit(r);
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}
