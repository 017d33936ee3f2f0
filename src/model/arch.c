/* arch.c: the registry, and the sliding windows that several architectures share. */
#include "model/arch.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

static const kv_arch *const registry[] = {
#define KV_ARCH(name) &kv_arch_##name,
#include "model/archs.inc"
#undef KV_ARCH
};
enum { N_ARCHS = sizeof registry / sizeof *registry };

kv_status kv_arch_find(const kv_arch **out, const kv_gguf *g) {
    kv_gguf_string name;
    KV_TRY(kv_gguf_get_string(g, "general.architecture", KV_GGUF_REQUIRED, &name));
    char known[256] = "";
    for (int32_t i = 0; i < N_ARCHS; i++) {
        if (name.size == strlen(registry[i]->name) && memcmp(name.at, registry[i]->name, name.size) == 0) {
            *out = registry[i];
            return KVANT_OK;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", registry[i]->name);
    }
    int shown = name.size < 64 ? (int)name.size : 64;
    return kv_fail(KVANT_UNSUPPORTED, "architecture \"%.*s\" is not known: there are %s", shown, name.at,
                   known);
}

static kv_status read_pattern(kv_hparams *h, const kv_gguf *g, const char *key, int32_t window) {
    int32_t *flags;
    size_t n;
    KV_TRY(kv_gguf_get_i32_array(g, key, KV_GGUF_REQUIRED, &flags, &n));
    kv_status status = KVANT_OK;
    if (n != (size_t)h->n_layers)
        status = kv_fail(KVANT_FORMAT, "%s: %zu items for %d layers", key, n, h->n_layers);
    for (int32_t i = 0; !status && i < h->n_layers; i++)
        if (flags[i]) h->layers[i].window = window;
    kv_free(flags);
    return status;
}

kv_status kv_arch_read_windows(kv_hparams *h, const kv_gguf *g, const char *arch, int32_t default_window,
                               int32_t default_period) {
    int32_t window = default_window, period = default_period;
    char key[128];
    KV_TRY(kv_hparams_i32(g, arch, "attention.sliding_window", KV_GGUF_OPTIONAL, 0, INT32_MAX, &window));
    if (!window) return KVANT_OK;
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch);
    const kv_gguf_value *pattern = kv_gguf_find(g, key);
    if (pattern && pattern->type == KV_GGUF_ARRAY) return read_pattern(h, g, key, window);
    KV_TRY(kv_hparams_i32(g, arch, "attention.sliding_window_pattern", KV_GGUF_OPTIONAL, 0, KV_MAX_LAYERS,
                          &period));
    for (int32_t i = 0; i < h->n_layers; i++)
        if (period == 0 || i % period < period - 1) h->layers[i].window = window;
    return KVANT_OK;
}
