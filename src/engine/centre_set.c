/* centre_set.c: means by layer, and the strongest pairs of a head. */
#include "engine/centre_set.h"

#include <string.h>

kv_status kv_centre_set_init(kv_centre_set *set, const kv_hparams *h) {
    int32_t *n_heads = kv_arena_alloc(&set->arena, (size_t)h->n_layers, sizeof *n_heads);
    set->means = kv_arena_alloc(&set->arena, (size_t)h->n_layers, sizeof *set->means);
    if (!n_heads || !set->means) return KVANT_NO_MEMORY;
    set->n_heads = n_heads;
    set->n_layers = h->n_layers;
    set->k_dim = h->k_dim;
    for (int32_t i = 0; i < h->n_layers; i++) {
        n_heads[i] = h->layers[i].n_kv_heads;
        set->means[i] = kv_arena_alloc(&set->arena, (size_t)n_heads[i] * (size_t)h->k_dim, sizeof(float));
        if (!set->means[i]) return KVANT_NO_MEMORY;
    }
    return KVANT_OK;
}

void kv_centre_set_clear(kv_centre_set *set) {
    kv_arena_clear(&set->arena);
    *set = (kv_centre_set){0};
}

kv_status kv_centre_set_from_biases(kv_centre_set *set, const kv_model *m) {
    KV_TRY(kv_centre_set_init(set, &m->hparams));
    for (int32_t i = 0; i < set->n_layers; i++) {
        const kv_layer_weights *w = &m->weights.layers[i];
        if (!w->k_bias || w->k_norm) continue;
        KV_TRY(kv_tensor_download(set->means[i], w->k_bias));
        set->source = KV_CENTRE_BIASES;
        set->n_pairs = set->k_dim / 2;
    }
    return KVANT_OK;
}

/* ---- the centre of a layer ---- */

static float length_squared(const float *head, const kv_rope *rope, int32_t pair) {
    float a = head[kv_rope_first(rope, pair)], b = head[kv_rope_second(rope, pair)];
    return a * a + b * b;
}

/* Pairs that are longer, the earlier of equals first. */
static int32_t rank_of(const float *head, const kv_rope *rope, int32_t pair) {
    float own = length_squared(head, rope, pair);
    int32_t rank = 0;
    for (int32_t i = 0; i < rope->n_rot / 2; i++) {
        float other = length_squared(head, rope, i);
        rank += other > own || (other == own && i < pair);
    }
    return rank;
}

/* The n strongest pairs of a head in ascending order, and the mean there. */
static void take_strongest(int32_t *pairs, float *mean, int32_t n, const float *head, const kv_rope *rope) {
    for (int32_t i = 0; i < rope->n_rot / 2; i++) {
        if (rank_of(head, rope, i) >= n) continue;
        *pairs++ = i;
        *mean++ = head[kv_rope_first(rope, i)];
        *mean++ = head[kv_rope_second(rope, i)];
    }
}

static bool is_zero(const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (x[i] != 0) return false;
    return true;
}

kv_status kv_centre_set_layer(const kv_centre **out, const kv_centre_set *set, int32_t layer,
                              const kv_rope *rope, kv_arena *arena) {
    int32_t n_pairs = set->n_pairs < rope->n_rot / 2 ? set->n_pairs : rope->n_rot / 2;
    *out = NULL;
    if (!n_pairs || is_zero(set->means[layer], set->n_heads[layer] * set->k_dim)) return KVANT_OK;
    int32_t n_heads = set->n_heads[layer];
    kv_centre *c = kv_arena_alloc(arena, 1, sizeof *c);
    int32_t *pairs = kv_arena_alloc(arena, (size_t)(n_heads * n_pairs), sizeof *pairs);
    float *mean = kv_arena_alloc(arena, (size_t)(n_heads * n_pairs) * 2, sizeof *mean);
    float *table = kv_arena_alloc(arena, kv_centre_table_floats(n_heads, n_pairs), sizeof *table);
    if (!c || !pairs || !mean || !table) return KVANT_NO_MEMORY;
    for (int32_t h = 0; h < n_heads; h++)
        take_strongest(pairs + h * n_pairs, mean + 2 * h * n_pairs, n_pairs,
                       set->means[layer] + h * set->k_dim, rope);
    *c = (kv_centre){.n_pairs = n_pairs, .pairs = pairs, .mean = mean, .table = table};
    kv_centre_fill_table(table, c, n_heads, rope);
    *out = c;
    return KVANT_OK;
}
