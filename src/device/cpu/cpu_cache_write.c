/* cpu_cache_write.c: driver of cache_write. An item is a token: its keys are centred, rotated, transformed,
 * padded, coded and scattered into the layout of the store; its values likewise.
 *
 *     work: [heads: floats][stored: floats][coded row]
 */
#include "device/cpu/cpu_op.h"
#include "op/cache_write.h"

#include <string.h>

typedef struct cache_write_impl {
    kv_cpu_impl head;
    kv_encode_fn *encode_k, *encode_v;
    size_t stored_at, coded_at;
} cache_write_impl;

static const kv_cache_write_params *params_of(const kv_node *n) { return n->params; }

static bool cache_write_accepts(const kv_node *n, unsigned cpu) {
    (void)cpu;
    return n->in[0]->dtype == KV_FLOAT && n->in[1]->dtype == KV_FLOAT;
}

static size_t largest(size_t a, size_t b) { return a > b ? a : b; }

static kv_status cache_write_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    const kv_store *s = params_of(n)->store;
    size_t coded = largest(kv_dtype_bytes(s->k.dtype, s->k.cols), kv_dtype_bytes(s->v.dtype, s->v.cols));
    size_t stored = (size_t)(s->k.cols > s->v.cols ? s->k.cols : s->v.cols) * sizeof(float);
    cache_write_impl *impl = n->impl = kv_arena_alloc(arena, 1, sizeof *impl);
    if (!impl) return KVANT_NO_MEMORY;
    impl->stored_at = kv_round_up((size_t)n->in[0]->cols * sizeof(float), 64);
    impl->coded_at = impl->stored_at + kv_round_up(stored, 64);
    impl->head = (kv_cpu_impl){.kernel = "cache_write", .work_bytes = impl->coded_at + coded};
    impl->encode_k = kv_cpu_close_encoder(s->k.dtype, cpu);
    impl->encode_v = kv_cpu_close_encoder(s->v.dtype, cpu);
    return KVANT_OK;
}

static int64_t cache_write_items(const kv_node *n, int32_t phase) {
    (void)phase;
    return params_of(n)->batch->n_tokens;
}

/* Keys of a token, centred and rotated, at `keys`. */
static void prepare_keys(const kv_node *n, int64_t token, float *keys) {
    const kv_store *s = params_of(n)->store;
    const kv_rope *rope = params_of(n)->rope;
    int32_t dim = s->k_head.dim;
    memcpy(keys, kv_tensor_row(n->in[0], token), (size_t)n->in[0]->cols * sizeof *keys);
    if (s->centre) kv_centre_add(keys, s->centre, s->n_kv_heads, dim, rope, -1);
    for (int32_t h = 0; rope->n_rot && h < s->n_kv_heads; h++)
        kv_rope_rotate(keys + h * dim, rope, kv_tensor_row(n->in[2], token));
}

static kv_status cache_write_run(const kv_node *n, int32_t phase, int64_t item, void *work) {
    (void)phase;
    const cache_write_impl *impl = n->impl;
    const kv_store *s = params_of(n)->store;
    int32_t cell = params_of(n)->batch->cells[item];
    float *keys = work, *stored = (float *)((uint8_t *)work + impl->stored_at);
    uint8_t *coded = (uint8_t *)work + impl->coded_at;
    prepare_keys(n, item, keys);
    kv_heads_store(stored, keys, s->n_kv_heads, &s->k_head);
    impl->encode_k(coded, stored, s->k.cols);
    kv_layout_pack(s->k.layout, s->k.dtype, s->k.cols, kv_tensor_data(&s->k), coded, cell, 1);
    kv_heads_store(stored, kv_tensor_row(n->in[1], item), s->n_kv_heads, &s->v_head);
    impl->encode_v(coded, stored, s->v.cols);
    kv_layout_pack(s->v.layout, s->v.dtype, s->v.cols, kv_tensor_data(&s->v), coded, cell, 1);
    return KVANT_OK;
}

const kv_cpu_op kv_cpu_cache_write = {.op = &kv_op_cache_write,
                                      .n_phases = 1,
                                      .accepts = cache_write_accepts,
                                      .prepare = cache_write_prepare,
                                      .n_items = cache_write_items,
                                      .run = cache_write_run};
