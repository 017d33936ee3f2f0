/* device.c: bytes from one device to another. */
#include "core/device.h"

kv_status kv_device_sync(kv_device *d) { return d->sync ? d->sync(d) : KVANT_OK; }

static bool within_kind(const kv_buffer *to, const kv_buffer *from) {
    return to->device->kind == from->device->kind && to->device->copy;
}

size_t kv_device_staging(kv_range to, kv_range from) {
    bool direct = within_kind(to.buffer, from.buffer) || to.buffer->host || from.buffer->host;
    return direct ? 0 : from.bytes;
}

kv_status kv_device_copy(kv_range to, kv_range from, void *staging) {
    kv_device *target = to.buffer->device, *source = from.buffer->device;
    if (within_kind(to.buffer, from.buffer)) return target->copy(to, from);
    if (from.buffer->host) { /* what writes there may not be done yet */
        KV_TRY(kv_device_sync(source));
        return target->upload(to, from.buffer->host + from.at);
    }
    if (to.buffer->host) { /* what reads there neither */
        KV_TRY(kv_device_sync(target));
        return source->download(to.buffer->host + to.at, from);
    }
    KV_TRY(source->download(staging, from));
    return target->upload(to, staging);
}
