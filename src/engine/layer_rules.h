/* layer_rules.h: options that differ between layers: "0-1,-2:-1=f16;5=q8_0/q4_0" is f16 for layers 0, 1 and
 * the last two, q8_0/q4_0 for layer 5. Ranges are A-B or A:B, negative numbers count from the end; later
 * rules win. */
#pragma once

#include "base/status.h"

typedef struct kv_layer_rules {
    const char *option; /* "kv_layers": for messages */
    const char *example;
    int32_t n_layers;
    /* The value (n characters, no NUL behind them) for layers [first, last]. */
    kv_status (*set)(void *user, int32_t first, int32_t last, const char *value, size_t n);
    void *user;
} kv_layer_rules;

/* `text` may be NULL: no rules. */
kv_status kv_layer_rules_apply(const kv_layer_rules *r, const char *text);
