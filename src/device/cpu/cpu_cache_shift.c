/* cpu_cache_shift.c: driver of cache_shift. An item is a few cells, worked on head by head, so that a thread
 * needs room for one head however large the cache is. Cells of one packed tile may be in the hands of
 * different threads: their bytes never overlap.
 *
 *     work: [table row: floats][numbers of a head: floats][coded head]
 */
#include "device/cpu/cpu_op.h"
#include "op/cache_shift.h"

enum { ITEM_CELLS = 16 };

typedef struct cache_shift_impl {
    kv_cpu_impl head;
    kv_encode_fn *encode;
    kv_decode_fn *decode;
    int32_t reach; /* numbers of a head that change */
    size_t numbers_at, coded_at;
} cache_shift_impl;

static const kv_cache_shift_params *params_of(const kv_node *n) { return n->params; }

static bool cache_shift_accepts(const kv_node *n, unsigned cpu) { return (void)n, (void)cpu, true; }

static kv_status cache_shift_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    const kv_cache_shift_params *p = params_of(n);
    const kv_dtype *d = p->store->k.dtype;
    cache_shift_impl *impl = n->impl = kv_arena_alloc(arena, 1, sizeof *impl);
    if (!impl) return KVANT_NO_MEMORY;
    impl->encode = kv_cpu_close_encoder(d, cpu);
    impl->decode = kv_cpu_decoder(d, cpu);
    impl->reach = kv_shift_reach(p->store, p->rope);
    impl->numbers_at = kv_round_up((size_t)p->rope->n_rot * sizeof(float), 64);
    impl->coded_at = impl->numbers_at + kv_round_up((size_t)impl->reach * sizeof(float), 64);
    impl->head =
        (kv_cpu_impl){.kernel = "cache_shift", .work_bytes = impl->coded_at + kv_dtype_bytes(d, impl->reach)};
    return KVANT_OK;
}

static int64_t cache_shift_items(const kv_node *n, int32_t phase) {
    (void)phase;
    return (params_of(n)->turns->n + ITEM_CELLS - 1) / ITEM_CELLS;
}

static void shift_cell(const kv_node *n, int32_t cell, const float *row, uint8_t *work) {
    const cache_shift_impl *impl = n->impl;
    const kv_cache_shift_params *p = params_of(n);
    const kv_store *s = p->store;
    const kv_tensor *t = &s->k;
    float *numbers = (float *)(work + impl->numbers_at);
    uint8_t *coded = work + impl->coded_at;
    int64_t blocks = impl->reach / t->dtype->block_elems, step = s->k_head.width / t->dtype->block_elems;
    for (int64_t h = 0; h < s->n_kv_heads; h++) {
        kv_layout_unpack_blocks(t->layout, t->dtype, t->cols, coded, kv_tensor_data(t), cell, h * step,
                                blocks);
        impl->decode(numbers, coded, impl->reach);
        kv_shift_head(numbers, impl->reach, &s->k_head, p->rope, row);
        impl->encode(coded, numbers, impl->reach);
        kv_layout_pack_blocks(t->layout, t->dtype, t->cols, kv_tensor_data(t), coded, cell, h * step, blocks);
    }
}

static kv_status cache_shift_run(const kv_node *n, int32_t phase, int64_t item, void *work) {
    (void)phase;
    const kv_cache_shift_params *p = params_of(n);
    const kv_cell_turns *turns = p->turns;
    int32_t first = (int32_t)item * ITEM_CELLS;
    int32_t end = turns->n - first < ITEM_CELLS ? turns->n : first + ITEM_CELLS;
    for (int32_t i = first; i < end; i++) {
        if (i == first || turns->deltas[i] != turns->deltas[i - 1])
            kv_rope_table_row(work, p->rope, (double)turns->deltas[i], 1);
        shift_cell(n, turns->cells[i], work, work);
    }
    return KVANT_OK;
}

const kv_cpu_op kv_cpu_cache_shift = {.op = &kv_op_cache_shift,
                                      .n_phases = 1,
                                      .accepts = cache_shift_accepts,
                                      .prepare = cache_shift_prepare,
                                      .n_items = cache_shift_items,
                                      .run = cache_shift_run};
