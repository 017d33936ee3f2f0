/* session_cache.c: from a session's options to its cache: the type, layout and transform of K and V of each
 * layer. */
#include "engine/engine.h"
#include "engine/layer_rules.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_MARGIN = 256 }; /* positions that layers with a window keep for going back */

/* ---- types ---- */

/* "f32, f16, ..." for messages. */
static void list_types(char *text, size_t capacity) {
    size_t at = 0;
    for (int32_t i = 0; i < kv_dtype_count(); i++) {
        const kv_dtype *d = kv_dtype_at(i);
        if (!d->caches || at + strlen(d->name) + 3 > capacity) continue;
        if (at) memcpy(text + at, ", ", 2), at += 2;
        memcpy(text + at, d->name, strlen(d->name)), at += strlen(d->name);
    }
    text[at] = 0;
}

static kv_status find_type(const kv_dtype **out, const char *what, const char *name) {
    char known[160];
    const kv_dtype *d = kv_dtype_by_name(name ? name : "f16");
    if (d && d->caches) {
        *out = d;
        return KVANT_OK;
    }
    list_types(known, sizeof known);
    return kv_fail(KVANT_INVALID, "%s type \"%s\": must be one of %s", what, name, known);
}

/* ---- single layers: "0-1,-2:-1=f16;5=q8_0/q4_0" ---- */

typedef struct layer_type {
    const kv_dtype *k, *v;
    kv_device *device;
} layer_type;

static kv_status take_name(char *name, size_t capacity, const char *value, size_t n) {
    if (n >= capacity) return kv_fail(KVANT_INVALID, "a name of %zu characters", n);
    memcpy(name, value, n);
    name[n] = 0;
    return KVANT_OK;
}

/* "TYPE" or "K/V". */
static kv_status set_types(void *user, int32_t first, int32_t last, const char *value, size_t n) {
    layer_type *types = user, type = {0};
    char name[64];
    KV_TRY(take_name(name, sizeof name, value, n));
    char *v = strchr(name, '/');
    if (v) *v++ = 0;
    KV_TRY(find_type(&type.k, "kv_layers: K", name));
    KV_TRY(find_type(&type.v, "kv_layers: V", v ? v : name));
    for (int32_t i = first; i <= last; i++) types[i].k = type.k, types[i].v = type.v;
    return KVANT_OK;
}

static kv_status apply_type_rules(const char *text, layer_type *types, int32_t n_layers) {
    kv_layer_rules rules = {.option = "kv_layers",
                            .example = "0-1,-2:-1=f16;5=q8_0/q4_0",
                            .n_layers = n_layers,
                            .set = set_types,
                            .user = types};
    return kv_layer_rules_apply(&rules, text);
}

typedef struct device_rules {
    const kvant_model *model;
    layer_type *types;
} device_rules;

static kv_status set_device(void *user, int32_t first, int32_t last, const char *value, size_t n) {
    const device_rules *r = user;
    kv_device *device;
    char name[32];
    KV_TRY(take_name(name, sizeof name, value, n));
    KV_TRY(kv_model_device(r->model, &device, name));
    for (int32_t i = first; i <= last; i++) r->types[i].device = device;
    return KVANT_OK;
}

/* A name alone is for all layers. */
static kv_status apply_device_rules(const kvant_model *m, const char *text, layer_type *types,
                                    int32_t n_layers) {
    device_rules user = {m, types};
    kv_layer_rules rules = {.option = "kv_device",
                            .example = "0-3=cpu:1;-1=cpu:0",
                            .n_layers = n_layers,
                            .set = set_device,
                            .user = &user};
    if (!text) return KVANT_OK;
    kv_status status = strchr(text, '=') ? kv_layer_rules_apply(&rules, text)
                                         : set_device(&user, 0, n_layers - 1, text, strlen(text));
    return status ? kv_fail_in(status, "kv_device") : KVANT_OK;
}

/* ---- layouts and transforms ---- */

static kv_status find_layout(const kv_layout **out, const char *name, const kv_layout *best) {
    *out = name ? kv_layout_by_name(name) : best;
    return *out ? KVANT_OK : kv_fail(KVANT_INVALID, "KV layout \"%s\": there is none of that name", name);
}

/* Floats gain nothing from the transform, nor from a centre. */
static bool rotated(const kvant_session_options *o, const kv_dtype *d) {
    return o->rotation == KVANT_ROTATION_AUTO && d->block_elems > 1;
}

static bool centred(const kvant_session *s, const kv_dtype *d) { return s->centre_set || d->block_elems > 1; }

static kv_status fill_layer(kv_cache_layer *out, const kvant_session *s, const kvant_session_options *o,
                            int32_t layer, const layer_type *type) {
    const kv_hparams *h = &s->model->model.hparams;
    kv_device *d = type->device;
    *out = (kv_cache_layer){.device = d,
                            .k_dtype = type->k,
                            .v_dtype = type->v,
                            .n_kv_heads = h->layers[layer].n_kv_heads,
                            .k_dim = h->k_dim,
                            .v_dim = h->v_dim,
                            .k_rotated = rotated(o, type->k),
                            .v_rotated = rotated(o, type->v),
                            .window = h->layers[layer].window,
                            .roped = s->ropes[h->layers[layer].rope].n_rot > 0,
                            .centre = centred(s, type->k) ? s->centres[layer] : NULL};
    KV_TRY(find_layout(&out->k_layout, o->layout_k, d->key_layout(d, type->k)));
    return find_layout(&out->v_layout, o->layout_v, d->value_layout(d, type->v));
}

/* ---- creation ---- */

/* Bytes of all layers that are in the memory of `d`, which it may share with its kind. */
static bool count_bytes(size_t *total, const kv_cache_spec *spec, const kv_device *d) {
    *total = 0;
    for (int32_t i = 0; i < spec->n_layers; i++) {
        const kv_cache_layer *l = &spec->layers[i];
        size_t bytes, n_cells = (size_t)kv_cache_window_cells(spec, l->window);
        if (l->device != d && !(l->device->kind == d->kind && d->kind->shares_memory)) continue;
        if (!kv_mul_size(&bytes, kv_cache_layer_bytes(l), n_cells) || !kv_add_size(total, *total, bytes))
            return false;
    }
    return true;
}

/* A cache is committed as it fills: one that can never be filled is refused here, not by a kill much later.
 */
static kv_status check_memory(const kvant_session *s, const kv_cache_spec *spec) {
    for (int32_t i = 0; i < s->model->n_devices; i++) {
        const kv_device *d = s->model->devices[i];
        size_t total;
        if (!count_bytes(&total, spec, d))
            return kv_fail(KVANT_NO_MEMORY, "more bytes asked for than can be counted");
        if (d->memory_bytes && total > d->memory_bytes)
            return kv_fail(KVANT_NO_MEMORY, "%zu bytes asked for, %s has %zu", total, d->name,
                           d->memory_bytes);
    }
    return KVANT_OK;
}

/* What no layer would use is not looked for. */
static kv_status open_centres(kvant_session *s, const kvant_session_options *o, const layer_type *types,
                              int32_t n_layers) {
    for (int32_t i = 0; i < n_layers; i++)
        if (centred(s, types[i].k)) return kv_session_open_centres(s, o);
    return KVANT_OK;
}

static kv_status fill_layers(kv_cache_layer *layers, layer_type *types, kvant_session *s,
                             const kvant_session_options *o) {
    int32_t n_layers = s->model->model.hparams.n_layers;
    layer_type type;
    KV_TRY(find_type(&type.k, "K", o->type_k));
    KV_TRY(find_type(&type.v, "V", o->type_v));
    for (int32_t i = 0; i < n_layers; i++) {
        types[i] = type;
        types[i].device = s->model->model.weights.layers[i].device;
    }
    KV_TRY(apply_type_rules(o->kv_layers, types, n_layers));
    KV_TRY(apply_device_rules(s->model, o->kv_device, types, n_layers));
    KV_TRY(open_centres(s, o, types, n_layers));
    for (int32_t i = 0; i < n_layers; i++) KV_TRY(fill_layer(&layers[i], s, o, i, &types[i]));
    return KVANT_OK;
}

kv_status kv_session_create_cache(kvant_session *s, const kvant_session_options *o) {
    int32_t n_layers = s->model->model.hparams.n_layers;
    kv_cache_layer *layers = kv_alloc((size_t)n_layers, sizeof *layers);
    layer_type *types = kv_alloc((size_t)n_layers, sizeof *types);
    kv_cache_spec spec = {.layers = layers,
                          .n_layers = n_layers,
                          .n_cells = s->n_ctx,
                          .n_sequences = s->n_sequences,
                          .n_batch = s->n_batch,
                          .can_turn = true,
                          .margin = o->window_margin ? o->window_margin : DEFAULT_MARGIN,
                          .n_pin = o->n_pin};
    kv_status status = layers && types ? fill_layers(layers, types, s, o) : KVANT_NO_MEMORY;
    if (!status) status = check_memory(s, &spec);
    if (!status) status = kv_cache_create(&s->cache, &spec);
    kv_free(layers);
    kv_free(types);
    if (status == KVANT_NO_MEMORY)
        kv_fail_in(status,
                   "KV cache of %d tokens, K %s, V %s (a smaller context or fewer bits, as q8_0, need less)",
                   s->n_ctx, o->type_k ? o->type_k : "f16", o->type_v ? o->type_v : "f16");
    return status;
}
