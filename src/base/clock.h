/* clock.h: monotonic time. */
#pragma once

#include <stdint.h>

int64_t kv_now_ns(void);
static inline double kv_seconds_since(int64_t start_ns) { return (double)(kv_now_ns() - start_ns) * 1e-9; }
