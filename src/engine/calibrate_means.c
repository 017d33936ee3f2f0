/* calibrate_means.c: a text is read with a cache of floats, and each batch's keys are read back and turned to
 * position 0. The first token is left out: models park attention on it, and its keys are unlike all others.
 */
#include "engine/calibrate.h"

#include <string.h>

enum { BATCH = 64 };

typedef struct observer {
    const kv_calibration *c;
    kvant_session *session;
    double **sums; /* for each layer: n_heads x k_dim */
    float *key;    /* of a cell, all heads */
    float *row;    /* of a rope table */
    kv_arena arena;
} observer;

static kv_status allocate(observer *o, const kv_centre_set *set) {
    int32_t most = 0;
    o->sums = kv_arena_alloc(&o->arena, (size_t)set->n_layers, sizeof *o->sums);
    if (!o->sums) return KVANT_NO_MEMORY;
    for (int32_t i = 0; i < set->n_layers; i++) {
        o->sums[i] = kv_arena_alloc(&o->arena, (size_t)set->n_heads[i] * (size_t)set->k_dim, sizeof(double));
        if (!o->sums[i]) return KVANT_NO_MEMORY;
        if (set->n_heads[i] > most) most = set->n_heads[i];
    }
    o->key = kv_arena_alloc(&o->arena, (size_t)most * (size_t)set->k_dim, sizeof *o->key);
    o->row = kv_arena_alloc(&o->arena, (size_t)set->k_dim, sizeof *o->row);
    return o->key && o->row ? KVANT_OK : KVANT_NO_MEMORY;
}

static kv_status open_observer(observer *o, const kv_centre_set *set) {
    kvant_session_options s = KVANT_SESSION_OPTIONS_INIT;
    s.n_ctx = o->c->n_tokens;
    s.n_batch = BATCH;
    s.type_k = s.type_v = KV_FLOAT->name;
    s.act = KVANT_ACT_F32;
    KV_TRY(allocate(o, set));
    return kvant_session_create(&o->session, o->c->model, &s);
}

/* The key of a layer in a cell, as it was before rotation. */
static kv_status add_key(observer *o, int32_t layer, int32_t cell, int64_t stored) {
    const kv_store *s = kv_cache_store(o->session->cache, layer);
    const kv_rope *rope = &o->session->ropes[o->c->model->model.hparams.layers[layer].rope];
    KV_TRY(kv_store_read_key(o->key, s, cell, stored, rope));
    kv_rope_table_row(o->row, rope, (double)-stored, 1 / rope->magnitude);
    for (int32_t h = 0; rope->n_rot && h < s->n_kv_heads; h++)
        kv_rope_rotate(o->key + h * s->k_head.dim, rope, o->row);
    for (int32_t i = 0; i < s->n_kv_heads * s->k_head.dim; i++) o->sums[layer][i] += (double)o->key[i];
    return KVANT_OK;
}

/* What the last evaluation wrote. */
static kv_status add_batch(observer *o, int32_t n_layers, int32_t first) {
    const kv_cache *cache = o->session->cache;
    for (int32_t layer = 0; layer < n_layers; layer++) {
        const kv_batch_view *batch = kv_cache_batch(cache, kv_cache_group(cache, layer));
        const kv_angles *angles = kv_cache_angles(cache, kv_cache_group(cache, layer));
        for (int32_t i = first; i < batch->n_tokens; i++)
            KV_TRY(add_key(o, layer, batch->cells[i], angles->stored[i]));
    }
    return KVANT_OK;
}

static kv_status observe(observer *o, int32_t n_layers) {
    const kv_calibration *c = o->c;
    for (int32_t at = 0; at < c->n_tokens; at += BATCH) {
        kvant_chunk chunk = {.tokens = c->tokens + at,
                             .n_tokens = c->n_tokens - at < BATCH ? c->n_tokens - at : BATCH};
        KV_TRY(kvant_eval(o->session, &chunk, 1));
        KV_TRY(add_batch(o, n_layers, at == 0));
        if (c->progress && !c->progress(c->user, (double)(at + chunk.n_tokens) / c->n_tokens))
            return kv_fail(KVANT_CANCELLED, "cancelled");
    }
    return KVANT_OK;
}

static void take_means(kv_centre_set *set, const observer *o) {
    for (int32_t layer = 0; layer < set->n_layers; layer++)
        for (int32_t i = 0; i < set->n_heads[layer] * set->k_dim; i++)
            set->means[layer][i] = (float)(o->sums[layer][i] / (o->c->n_tokens - 1));
    set->source = KV_CENTRE_CALIBRATED;
    set->n_pairs = set->k_dim / 2;
}

kv_status kv_calibrate_means(kv_centre_set *set, const kv_calibration *c) {
    observer o = {.c = c};
    kv_status status = kv_centre_set_init(set, &c->model->model.hparams);
    if (!status) status = open_observer(&o, set);
    if (!status) status = observe(&o, set->n_layers);
    if (!status) take_means(set, &o);
    kvant_session_close(o.session);
    kv_arena_clear(&o.arena);
    return status;
}
