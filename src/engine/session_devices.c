/* session_devices.c: what each device holds for a session. */
#include "engine/engine.h"

static int64_t store_bytes_on(const kv_tensor *t, const kv_device *d) {
    return t->buffer->device == d ? (int64_t)t->buffer->bytes : 0;
}

static int64_t kv_bytes(const kvant_session *s, const kv_device *d) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < s->model->model.hparams.n_layers; i++) {
        const kv_store *store = kv_cache_store(s->cache, i);
        bytes += store_bytes_on(&store->k, d) + store_bytes_on(&store->v, d);
    }
    return bytes;
}

static int64_t scratch_bytes(const kvant_session *s, const kv_device *d) {
    size_t bytes = s->rewrite ? kv_plan_device_bytes(s->rewrite, d) : 0;
    for (int i = 0; i < KV_N_PLANS; i++)
        if (s->plans[i].plan) bytes += kv_plan_device_bytes(s->plans[i].plan, d);
    return (int64_t)bytes;
}

static int32_t layers_on(const kvant_model *m, const kv_device *d) {
    int32_t n = 0;
    for (int32_t i = 0; i < m->model.hparams.n_layers; i++) n += m->model.weights.layers[i].device == d;
    return n;
}

kvant_status kvant_session_device(const kvant_session *s, int32_t i, kvant_device_row *row) {
    const kvant_model *m = s->model;
    if (i < 0 || i >= m->n_devices)
        return kv_fail(KVANT_INVALID, "device %d: must be 0 to %d", i, m->n_devices - 1);
    const kv_device *d = m->devices[i];
    kvant_device_row r = {.name = d->name,
                          .kernels = d->kernels,
                          .n_threads = d->n_threads,
                          .n_layers = layers_on(m, d),
                          .weight_bytes = m->model.weights.shards[i].bytes,
                          .kv_bytes = kv_bytes(s, d),
                          .scratch_bytes = scratch_bytes(s, d)};
    kv_give_struct(row, &r, sizeof r);
    return KVANT_OK;
}
