/* cpu_device.h: the CPU as a device: host memory, a thread pool, the best kernels the processor has. */
#pragma once

#include "core/graph.h"

extern const kv_device_kind kv_device_kind_cpu;

/* `flags`: kv_cpu_flags that may be used; `n_threads` >= 1. Sessions share the device; runs take turns. */
kv_status kv_cpu_device_create(kv_device **out, int32_t index, int32_t n_threads, unsigned flags);
