/* scratch.c: first fit by lifetime. A tensor lives from the stage that writes it to the last that reads it;
 * it gets the lowest offset where no tensor alive at the same time lies. */
#include "sched/scratch.h"

#include <limits.h>

enum { ALIGN = 64 };

typedef struct slot {
    kv_tensor *tensor;
    int32_t first, last; /* stages */
    size_t begin, end;   /* bytes */
} slot;

static slot *find(slot *slots, size_t n, const kv_tensor *t) {
    for (size_t i = n; i-- > 0;) /* most uses are of recent tensors */
        if (slots[i].tensor == t) return &slots[i];
    return NULL;
}

/* One slot per tensor that a node writes, with its lifetime; outputs that nobody reads live to the end. */
static size_t collect(const kv_graph *g, const int32_t *stage_of, slot *slots) {
    size_t n = 0;
    for (size_t i = 0; i < g->nodes.count; i++) {
        const kv_node *node = g->nodes.at[i];
        for (int k = 0; k < KV_MAX_INPUTS; k++) {
            slot *s = node->in[k] ? find(slots, n, node->in[k]) : NULL;
            if (s) s->last = stage_of[i];
        }
        if (node->out && !node->out->buffer && !find(slots, n, node->out))
            slots[n++] = (slot){.tensor = node->out, .first = stage_of[i], .last = -1};
    }
    for (size_t i = 0; i < n; i++)
        if (slots[i].last < 0) slots[i].last = INT_MAX;
    return n;
}

/* The lowest offset for slot i among slots [0, i), which are placed. */
static void place(slot *slots, size_t i) {
    slot *s = &slots[i];
    size_t bytes = kv_round_up(kv_tensor_bytes(s->tensor), ALIGN);
    s->begin = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t j = 0; j < i; j++) {
            const slot *o = &slots[j];
            bool alive = o->first <= s->last && s->first <= o->last;
            if (alive && s->begin < o->end && o->begin < s->begin + bytes) {
                s->begin = o->end;
                moved = true;
            }
        }
    }
    s->end = s->begin + bytes;
}

kv_status kv_scratch_bind(kv_graph *g, const int32_t *stage_of, kv_buffer *scratch) {
    slot *slots = kv_alloc(g->scratch.count, sizeof *slots);
    if (!slots) return KVANT_NO_MEMORY;
    size_t n = collect(g, stage_of, slots), total = ALIGN;
    for (size_t i = 0; i < n; i++) {
        place(slots, i);
        if (slots[i].end > total) total = slots[i].end;
    }
    kv_device *device = g->nodes.at[0]->device;
    kv_status status = device->alloc(device, scratch, total);
    for (size_t i = 0; !status && i < n; i++) {
        slots[i].tensor->buffer = scratch;
        slots[i].tensor->offset = slots[i].begin;
    }
    kv_free(slots);
    return status;
}
