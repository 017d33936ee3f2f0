/* session_cache.c: from a session's options to its cache: the type, layout and transform of K and V of each
 * layer. */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

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

static kv_status layers_fault(const char *rules, const char *why) {
    return kv_fail(KVANT_INVALID,
                   "kv_layers \"%s\": %s (as in \"0-1,-2:-1=f16;5=q8_0/q4_0\", negative from the end)", rules,
                   why);
}

/* A layer number at *at, negative ones counted from the end. */
static bool take_layer(const char **at, int32_t n_layers, int32_t *out) {
    char *end;
    long number = strtol(*at, &end, 10);
    if (end == *at) return false;
    *at = end;
    if (number < 0) number += n_layers;
    *out = (int32_t)number;
    return number >= 0 && number < n_layers;
}

typedef struct layer_type {
    const kv_dtype *k, *v;
} layer_type;

/* "TYPE" or "K/V" up to the end or a semicolon. */
static kv_status take_types(const char *text, size_t n, layer_type *out) {
    char name[64];
    if (n >= sizeof name) return kv_fail(KVANT_INVALID, "kv_layers: type name of %zu characters", n);
    memcpy(name, text, n);
    name[n] = 0;
    char *v = strchr(name, '/');
    if (v) *v++ = 0;
    KV_TRY(find_type(&out->k, "kv_layers: K", name));
    return find_type(&out->v, "kv_layers: V", v ? v : name);
}

/* One rule: marks and sets the layers of its ranges. */
static kv_status apply_rule(const char *rules, const char *rule, size_t n, layer_type *types,
                            int32_t n_layers) {
    const char *at = rule, *equals = memchr(rule, '=', n);
    layer_type type;
    if (!equals) return layers_fault(rules, "a rule without \"=\"");
    KV_TRY(take_types(equals + 1, n - (size_t)(equals + 1 - rule), &type));
    while (at < equals) {
        int32_t first, last;
        if (!take_layer(&at, n_layers, &first)) return layers_fault(rules, "no such layer");
        last = first;
        if ((*at == '-' || *at == ':') && (at++, !take_layer(&at, n_layers, &last)))
            return layers_fault(rules, "no such layer");
        if (last < first) return layers_fault(rules, "a range that ends before it begins");
        if (at < equals && *at++ != ',') return layers_fault(rules, "a comma is missing");
        for (int32_t i = first; i <= last; i++) types[i] = type;
    }
    return KVANT_OK;
}

static kv_status apply_rules(const char *rules, layer_type *types, int32_t n_layers) {
    for (const char *at = rules; at && *at;) {
        size_t n = strcspn(at, ";");
        KV_TRY(apply_rule(rules, at, n, types, n_layers));
        at += n + (at[n] == ';');
    }
    return KVANT_OK;
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
    kv_device *d = s->model->device;
    *out = (kv_cache_layer){.device = d,
                            .k_dtype = type->k,
                            .v_dtype = type->v,
                            .n_kv_heads = h->layers[layer].n_kv_heads,
                            .k_dim = h->k_dim,
                            .v_dim = h->v_dim,
                            .k_rotated = rotated(o, type->k),
                            .v_rotated = rotated(o, type->v),
                            .centre = centred(s, type->k) ? s->centres[layer] : NULL};
    KV_TRY(find_layout(&out->k_layout, o->layout_k, d->key_layout(d, type->k)));
    return find_layout(&out->v_layout, o->layout_v, d->value_layout(d, type->v));
}

/* ---- creation ---- */

/* A cache is committed as it fills: one that can never be filled is refused here, not by a kill much later.
 */
static kv_status check_memory(const kvant_session *s, const kv_cache_layer *layers, int32_t n_layers) {
    size_t per_cell = 0, memory = s->model->device->memory_bytes, total;
    for (int32_t i = 0; i < n_layers; i++) per_cell += kv_cache_layer_bytes(&layers[i]);
    if (!kv_mul_size(&total, per_cell, (size_t)s->n_ctx)) total = SIZE_MAX;
    if (!memory || total <= memory) return KVANT_OK;
    return kv_fail(KVANT_NO_MEMORY, "%zu bytes asked for, %s has %zu", total, s->model->device->name, memory);
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
    for (int32_t i = 0; i < n_layers; i++) types[i] = type;
    KV_TRY(apply_rules(o->kv_layers, types, n_layers));
    KV_TRY(open_centres(s, o, types, n_layers));
    for (int32_t i = 0; i < n_layers; i++) KV_TRY(fill_layer(&layers[i], s, o, i, &types[i]));
    return check_memory(s, layers, n_layers);
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
                          .can_turn = true};
    kv_status status = layers && types ? fill_layers(layers, types, s, o) : KVANT_NO_MEMORY;
    if (!status) status = kv_cache_create(&s->cache, &spec);
    kv_free(layers);
    kv_free(types);
    if (status == KVANT_NO_MEMORY)
        kv_fail_in(status, "KV cache of %d tokens, K %s, V %s (a smaller context or fewer bits need less)",
                   s->n_ctx, o->type_k ? o->type_k : "f16", o->type_v ? o->type_v : "f16");
    return status;
}
