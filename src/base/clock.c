/* clock.c: monotonic time. */
#define _POSIX_C_SOURCE 199309L
#include "base/clock.h"

#include <time.h>

int64_t kv_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
