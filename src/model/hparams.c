/* hparams.c: keys, ranges, defaults. */
#include "model/hparams.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 128, MAX_DIM = 1 << 24, MAX_HEAD_DIM = 1024 };

static const char *make_key(char key[KEY_BYTES], const char *arch, const char *name) {
    snprintf(key, KEY_BYTES, "%s.%s", arch, name);
    return key;
}

kv_status kv_hparams_i32(const kv_gguf *g, const char *arch, const char *name, kv_gguf_need need, int32_t low,
                         int32_t high, int32_t *out) {
    char key[KEY_BYTES];
    int32_t value = *out;
    KV_TRY(kv_gguf_get_i32(g, make_key(key, arch, name), need, &value));
    if (kv_gguf_find(g, key) && (value < low || value > high))
        return kv_fail(KVANT_FORMAT, "%s: %d, must be %d to %d", key, value, low, high);
    *out = value;
    return KVANT_OK;
}

kv_status kv_hparams_f32(const kv_gguf *g, const char *arch, const char *name, kv_gguf_need need,
                         float *out) {
    char key[KEY_BYTES];
    return kv_gguf_get_f32(g, make_key(key, arch, name), need, out);
}

/* A number for all layers or an array with one for each. */
static kv_status read_per_layer(const kv_gguf *g, const char *arch, const char *name, kv_gguf_need need,
                                int32_t n_layers, int32_t *out) {
    char key[KEY_BYTES];
    const kv_gguf_value *value = kv_gguf_find(g, make_key(key, arch, name));
    if (!value || value->type != KV_GGUF_ARRAY) {
        int32_t same = out[0];
        KV_TRY(kv_hparams_i32(g, arch, name, need, 1, MAX_DIM, &same));
        for (int32_t i = 0; value && i < n_layers; i++) out[i] = same;
        return KVANT_OK;
    }
    int32_t *items;
    size_t n;
    KV_TRY(kv_gguf_get_i32_array(g, key, need, &items, &n));
    kv_status status = KVANT_OK;
    if (n != (size_t)n_layers)
        status = kv_fail(KVANT_FORMAT, "%s: %zu items for %d layers", key, n, n_layers);
    for (int32_t i = 0; !status && i < n_layers; i++) {
        out[i] = items[i];
        if (items[i] < 1 || items[i] > MAX_DIM)
            status = kv_fail(KVANT_FORMAT, "%s: %d in layer %d, must be 1 to %d", key, items[i], i, MAX_DIM);
    }
    kv_free(items);
    return status;
}

static kv_status fill_layers(kv_hparams *h, const kv_gguf *g, const char *arch, int32_t *values) {
    int32_t n = h->n_layers;
    KV_TRY(read_per_layer(g, arch, "attention.head_count", KV_GGUF_REQUIRED, n, values));
    for (int32_t i = 0; i < n; i++) h->layers[i].n_heads = values[i];
    KV_TRY(read_per_layer(g, arch, "attention.head_count_kv", KV_GGUF_OPTIONAL, n, values));
    for (int32_t i = 0; i < n; i++) h->layers[i].n_kv_heads = values[i];
    KV_TRY(read_per_layer(g, arch, "feed_forward_length", KV_GGUF_REQUIRED, n, values));
    for (int32_t i = 0; i < n; i++) {
        h->layers[i].n_ff = values[i];
        if (h->layers[i].n_heads % h->layers[i].n_kv_heads)
            return kv_fail(KVANT_FORMAT, "layer %d: %d heads, not a multiple of %d KV heads", i,
                           h->layers[i].n_heads, h->layers[i].n_kv_heads);
    }
    return KVANT_OK;
}

static kv_status read_layers(kv_hparams *h, const kv_gguf *g, const char *arch) {
    h->layers = kv_alloc((size_t)h->n_layers, sizeof *h->layers);
    int32_t *values = kv_alloc((size_t)h->n_layers, sizeof *values);
    kv_status status = h->layers && values ? fill_layers(h, g, arch, values) : KVANT_NO_MEMORY;
    kv_free(values);
    return status;
}

static kv_status read_head_dims(kv_hparams *h, const kv_gguf *g, const char *arch) {
    int32_t n_heads = h->layers[0].n_heads;
    h->k_dim = h->v_dim = h->n_embd / n_heads;
    if (h->k_dim < 1 || h->k_dim > MAX_HEAD_DIM) h->k_dim = h->v_dim = 0; /* then the keys have to say */
    kv_gguf_need need = h->k_dim ? KV_GGUF_OPTIONAL : KV_GGUF_REQUIRED;
    KV_TRY(kv_hparams_i32(g, arch, "attention.key_length", need, 1, MAX_HEAD_DIM, &h->k_dim));
    KV_TRY(kv_hparams_i32(g, arch, "attention.value_length", need, 1, MAX_HEAD_DIM, &h->v_dim));
    h->attn_scale = 1 / sqrtf((float)h->k_dim);
    return kv_hparams_f32(g, arch, "attention.scale", KV_GGUF_OPTIONAL, &h->attn_scale);
}

/* The kind of scaling the file names. */
static kv_status read_scaling(const kv_gguf *g, const char *arch, kv_gguf_string *type, float *factor) {
    char key[KEY_BYTES];
    *type = (kv_gguf_string){"linear", 6};
    *factor = 1;
    KV_TRY(kv_hparams_f32(g, arch, "rope.scale_linear", KV_GGUF_OPTIONAL, factor)); /* the older name */
    KV_TRY(kv_hparams_f32(g, arch, "rope.scaling.factor", KV_GGUF_OPTIONAL, factor));
    if (*factor == 0) *factor = 1;
    if (*factor < 0)
        return kv_fail(KVANT_FORMAT, "%s.rope.scaling.factor: %g, must be positive", arch, (double)*factor);
    return kv_gguf_get_string(g, make_key(key, arch, "rope.scaling.type"), KV_GGUF_OPTIONAL, type);
}

static bool is(const kv_gguf_string *s, const char *text) {
    return s->size == strlen(text) && memcmp(s->at, text, s->size) == 0;
}

/* YaRN section 3.4: the magnitude that keeps the scores' spread. */
static float yarn_magnitude(float factor, float log_multiplier) {
    float m = factor > 1 ? 1 + 0.1f * logf(factor) : 1;
    return log_multiplier > 0 ? m / (1 + 0.1f * log_multiplier * logf(factor)) : m;
}

static kv_status read_yarn(kv_hparams *h, const kv_gguf *g, const char *arch, float factor) {
    kv_rope_spec *r = &h->rope[KV_ROPE_GLOBAL];
    float fast = 32, slow = 1, log_multiplier = 0;
    KV_TRY(kv_hparams_f32(g, arch, "rope.scaling.yarn_beta_fast", KV_GGUF_OPTIONAL, &fast));
    KV_TRY(kv_hparams_f32(g, arch, "rope.scaling.yarn_beta_slow", KV_GGUF_OPTIONAL, &slow));
    KV_TRY(kv_hparams_f32(g, arch, "rope.scaling.yarn_log_multiplier", KV_GGUF_OPTIONAL, &log_multiplier));
    if (!(fast > 0) || !(slow > 0))
        return kv_fail(KVANT_FORMAT,
                       "%s.rope.scaling: yarn_beta_fast %g, yarn_beta_slow %g, must be positive", arch,
                       (double)fast, (double)slow);
    r->yarn_factor = (double)factor;
    r->yarn_beta_fast = (double)fast;
    r->yarn_beta_slow = (double)slow;
    h->rope_magnitude *= yarn_magnitude(factor, log_multiplier);
    return KVANT_OK;
}

static kv_status read_rope(kv_hparams *h, const kv_gguf *g, const char *arch) {
    kv_rope_spec *r = &h->rope[KV_ROPE_GLOBAL];
    float base = 10000, factor;
    kv_gguf_string type;
    r->n_rot = h->k_dim;
    r->n_ctx_original = h->n_ctx_train;
    h->rope_magnitude = 1;
    KV_TRY(kv_hparams_i32(g, arch, "rope.dimension_count", KV_GGUF_OPTIONAL, 0, h->k_dim, &r->n_rot));
    KV_TRY(kv_hparams_f32(g, arch, "rope.freq_base", KV_GGUF_OPTIONAL, &base));
    KV_TRY(read_scaling(g, arch, &type, &factor));
    KV_TRY(kv_hparams_i32(g, arch, "rope.scaling.original_context_length", KV_GGUF_OPTIONAL, 1, INT32_MAX,
                          &r->n_ctx_original));
    KV_TRY(kv_hparams_f32(g, arch, "rope.scaling.attn_factor", KV_GGUF_OPTIONAL, &h->rope_magnitude));
    if (r->n_rot % 2)
        return kv_fail(KVANT_FORMAT, "%s.rope.dimension_count: %d, must be even", arch, r->n_rot);
    if (!(base > 1))
        return kv_fail(KVANT_FORMAT, "%s.rope.freq_base: %g, must be above 1", arch, (double)base);
    r->base = (double)base;
    r->linear = is(&type, "linear") ? (double)factor : 1;
    if (is(&type, "yarn"))
        KV_TRY(read_yarn(h, g, arch, factor));
    else if (!is(&type, "linear") && !is(&type, "none") && !is(&type, "longrope"))
        return kv_fail(KVANT_UNSUPPORTED,
                       "%s.rope.scaling.type \"%.*s\": must be none, linear, yarn or longrope", arch,
                       (int)type.size, type.at);
    h->rope[KV_ROPE_LOCAL] = *r;
    return KVANT_OK;
}

kv_status kv_hparams_read(kv_hparams *h, const kv_gguf *g, const char *arch) {
    *h = (kv_hparams){.embed_scale = 1};
    KV_TRY(kv_hparams_i32(g, arch, "block_count", KV_GGUF_REQUIRED, 1, KV_MAX_LAYERS, &h->n_layers));
    KV_TRY(kv_hparams_i32(g, arch, "embedding_length", KV_GGUF_REQUIRED, 1, MAX_DIM, &h->n_embd));
    KV_TRY(kv_hparams_i32(g, arch, "context_length", KV_GGUF_REQUIRED, 1, INT32_MAX, &h->n_ctx_train));
    KV_TRY(kv_hparams_f32(g, arch, "attention.layer_norm_rms_epsilon", KV_GGUF_REQUIRED, &h->norm_eps));
    if (!(h->norm_eps >= 0 && h->norm_eps < 1))
        return kv_fail(KVANT_FORMAT, "%s.attention.layer_norm_rms_epsilon: %g, must be 0 to 1", arch,
                       (double)h->norm_eps);
    KV_TRY(read_layers(h, g, arch));
    KV_TRY(read_head_dims(h, g, arch));
    return read_rope(h, g, arch);
}

void kv_hparams_clear(kv_hparams *h) {
    kv_free(h->layers);
    h->layers = NULL;
}
