/* cache_shift: the rotary numbers of store.k[cells[i]] decoded, rotated by deltas[i], coded. */
#include "op/cache_shift.h"

#include "op/hadamard.h"

#include <string.h>

int32_t kv_shift_reach(const kv_store *s, const kv_rope *rope) {
    size_t mixed = kv_round_up((size_t)rope->n_rot, (size_t)s->k_head.rotation);
    return (int32_t)kv_round_up(mixed, (size_t)s->k.dtype->block_elems);
}

void kv_shift_head(float *stored, int32_t reach, const kv_head_code *code, const kv_rope *rope,
                   const float *row) {
    int32_t mixed = (int32_t)kv_round_up((size_t)rope->n_rot, (size_t)code->rotation);
    kv_hadamard(stored, mixed, code->rotation);
    kv_rope_rotate(stored, rope, row);
    kv_hadamard(stored, mixed, code->rotation);
    for (int32_t i = code->dim; i < reach; i++) stored[i] = 0; /* padding is coded as it was written */
}

static kv_status check(const kv_node *n) {
    const kv_cache_shift_params *p = n->params;
    if (!p->store || !p->turns) return kv_fail(KVANT_INVALID, "a store and a list of cells are needed");
    if (p->rope->n_rot > 0 && p->rope->n_rot <= p->store->k_head.dim) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "%d rotary dimensions, must be 1 to the head's %d", p->rope->n_rot,
                   p->store->k_head.dim);
}

/* The plain row is taken out, changed head by head, and put back: the slow and obvious way. */
static void shift_cell(const kv_cache_shift_params *p, int32_t cell, const float *row, float *numbers,
                       uint8_t *plain) {
    const kv_store *s = p->store;
    const kv_tensor *t = &s->k;
    int32_t reach = kv_shift_reach(s, p->rope);
    kv_layout_unpack(t->layout, t->dtype, t->cols, plain, kv_tensor_data(t), cell, 1);
    for (int32_t h = 0; h < s->n_kv_heads; h++) {
        uint8_t *head = plain + kv_dtype_bytes(t->dtype, (int64_t)h * s->k_head.width);
        t->dtype->decode(numbers, head, reach);
        kv_shift_head(numbers, reach, &s->k_head, p->rope, row);
        kv_dtype_encode_close(t->dtype, head, numbers, reach);
    }
    kv_layout_pack(t->layout, t->dtype, t->cols, kv_tensor_data(t), plain, cell, 1);
}

static kv_status reference(const kv_node *n) {
    const kv_cache_shift_params *p = n->params;
    const kv_tensor *t = &p->store->k;
    kv_arena arena = {0};
    float *row = kv_arena_alloc(&arena, (size_t)p->rope->n_rot, sizeof *row);
    float *numbers = kv_arena_alloc(&arena, (size_t)p->store->k_head.width, sizeof *numbers);
    uint8_t *plain = kv_arena_alloc(&arena, 1, kv_dtype_bytes(t->dtype, t->cols));
    bool room = row && numbers && plain;
    for (int32_t i = 0; room && i < p->turns->n; i++) {
        kv_rope_table_row(row, p->rope, (double)p->turns->deltas[i], 1);
        shift_cell(p, p->turns->cells[i], row, numbers, plain);
    }
    kv_arena_clear(&arena);
    return room ? KVANT_OK : KVANT_NO_MEMORY;
}

const kv_op kv_op_cache_shift = {.name = "cache_shift", .check = check, .reference = reference};

void kv_cache_shift_keys(kv_graph *g, const kv_cache_shift_params *p) {
    if (g->status) return;
    kv_node node = {
        .op = &kv_op_cache_shift, .params = p, .writes = p->store, .home = p->store->k.buffer->device};
    kv_graph_add(g, &node, sizeof *p);
}
