/* cpu_cache_move.c: driver of cache_move. An item is a cell. */
#include "device/cpu/cpu_op.h"
#include "op/cache_move.h"

static const kv_cache_move_params *params_of(const kv_node *n) { return n->params; }

static bool cache_move_accepts(const kv_node *n, unsigned cpu) { return (void)n, (void)cpu, true; }

static kv_status cache_move_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    (void)cpu;
    const kv_store *s = params_of(n)->store;
    size_t k = kv_dtype_bytes(s->k.dtype, s->k.cols), v = kv_dtype_bytes(s->v.dtype, s->v.cols);
    kv_cpu_impl *impl = n->impl = kv_arena_alloc(arena, 1, sizeof *impl);
    if (!impl) return KVANT_NO_MEMORY;
    *impl = (kv_cpu_impl){.kernel = "cache_move", .work_bytes = k > v ? k : v};
    return KVANT_OK;
}

static int64_t cache_move_items(const kv_node *n, int32_t phase) {
    (void)phase;
    return params_of(n)->moves->n;
}

static kv_status cache_move_run(const kv_node *n, int32_t phase, int64_t item, void *work) {
    (void)phase;
    const kv_cell_moves *m = params_of(n)->moves;
    const kv_store *s = params_of(n)->store;
    kv_cell_copy(&s->k, m->from[item], m->to[item], work);
    kv_cell_copy(&s->v, m->from[item], m->to[item], work);
    return KVANT_OK;
}

const kv_cpu_op kv_cpu_cache_move = {.op = &kv_op_cache_move,
                                     .n_phases = 1,
                                     .accepts = cache_move_accepts,
                                     .prepare = cache_move_prepare,
                                     .n_items = cache_move_items,
                                     .run = cache_move_run};
