/* registry.h: the kinds of devices that were compiled in (devices.inc), and opening one by name. */
#pragma once

#include "core/device.h"

#define KV_DEVICE_KIND(name) extern const kv_device_kind kv_device_kind_##name;
#include "device/devices.inc"
#undef KV_DEVICE_KIND

int32_t kv_device_kind_count(void);
const kv_device_kind *kv_device_kind_at(int32_t i);

/* What a name ("cpu:1"; "cpu" is "cpu:0") stands for; KVANT_INVALID lists what exists. */
kv_status kv_device_find(const kv_device_kind **kind, int32_t *index, const char *name);
