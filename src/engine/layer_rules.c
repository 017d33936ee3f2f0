/* layer_rules.c: ranges of layers and what they are set to. */
#include "engine/layer_rules.h"

#include <stdlib.h>
#include <string.h>

static kv_status fault(const kv_layer_rules *r, const char *text, const char *why) {
    return kv_fail(KVANT_INVALID, "%s \"%s\": %s (as in \"%s\", negative from the end)", r->option, text, why,
                   r->example);
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

/* The rule of n characters at `rule`. */
static kv_status apply_rule(const kv_layer_rules *r, const char *text, const char *rule, size_t n) {
    const char *at = rule, *equals = memchr(rule, '=', n);
    if (!equals) return fault(r, text, "a rule without \"=\"");
    while (at < equals) {
        int32_t first, last;
        if (!take_layer(&at, r->n_layers, &first)) return fault(r, text, "no such layer");
        last = first;
        if ((*at == '-' || *at == ':') && (at++, !take_layer(&at, r->n_layers, &last)))
            return fault(r, text, "no such layer");
        if (last < first) return fault(r, text, "a range that ends before it begins");
        if (at < equals && *at++ != ',') return fault(r, text, "a comma is missing");
        KV_TRY(r->set(r->user, first, last, equals + 1, n - (size_t)(equals + 1 - rule)));
    }
    return KVANT_OK;
}

kv_status kv_layer_rules_apply(const kv_layer_rules *r, const char *text) {
    for (const char *at = text; at && *at;) {
        size_t n = strcspn(at, ";");
        KV_TRY(apply_rule(r, text, at, n));
        at += n + (at[n] == ';');
    }
    return KVANT_OK;
}
