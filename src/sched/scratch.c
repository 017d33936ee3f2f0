/* scratch.c: first fit by lifetime, on each device for itself. A tensor lives from the stage that writes it
 * to the last that reads it; it gets the lowest offset where no tensor alive at the same time lies. A copy to
 * another device happens at the first stage of the segment that reads it. */
#include "sched/scratch.h"

#include "sched/stage.h"

#include <limits.h>

enum { ALIGN = 64 };

typedef struct slot {
    kv_tensor *tensor;
    int32_t first, last; /* stages */
    size_t begin, end;   /* bytes */
} slot;

typedef struct slots {
    slot *at;
    size_t n;
} slots;

static slot *find(const slots *s, const kv_tensor *t) {
    for (size_t i = s->n; i-- > 0;) /* most uses are of recent tensors */
        if (s->at[i].tensor == t) return &s->at[i];
    return NULL;
}

static void note_use(const slots *s, const kv_tensor *t, int32_t stage) {
    slot *used = t ? find(s, t) : NULL;
    if (used && used->last < stage) used->last = stage;
}

static void add(slots *s, kv_tensor *t, int32_t stage) {
    s->at[s->n++] = (slot){.tensor = t, .first = stage, .last = -1};
}

/* One slot for each tensor that a node or a copy writes, with its lifetime; outputs that nobody reads live to
 * the end. */
static void collect(slots *s, const kv_graph *g, const kv_placement *p, const int32_t *stage_of) {
    size_t next = 0; /* crossing */
    for (size_t i = 0; i < g->nodes.count; i++) {
        const kv_node *node = g->nodes.at[i];
        for (; next < p->crossings.count && p->crossings.at[next].reader == (int32_t)i; next++) {
            const kv_crossing *c = &p->crossings.at[next];
            int32_t stage = stage_of[kv_segment_begin(g, (int32_t)i)];
            note_use(s, c->from, stage);
            add(s, c->to, stage);
        }
        for (int k = 0; k < KV_MAX_INPUTS; k++) note_use(s, node->in[k], stage_of[i]);
        if (node->out && kv_is_scratch(p, node->out) && !find(s, node->out)) add(s, node->out, stage_of[i]);
    }
    for (size_t i = 0; i < s->n; i++)
        if (s->at[i].last < 0) s->at[i].last = INT_MAX;
}

/* The lowest offset for slot i among slots [0, i), which are placed. */
static void place(const slots *all, size_t i) {
    slot *s = &all->at[i];
    size_t bytes = kv_round_up(kv_tensor_bytes(s->tensor), ALIGN);
    s->begin = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t j = 0; j < i; j++) {
            const slot *o = &all->at[j];
            bool alive = o->first <= s->last && s->first <= o->last;
            if (alive && o->tensor->buffer == s->tensor->buffer && s->begin < o->end &&
                o->begin < s->begin + bytes) {
                s->begin = o->end;
                moved = true;
            }
        }
    }
    s->end = s->begin + bytes;
    s->tensor->offset = s->begin;
}

static kv_status allocate(kv_buffer *scratch, const slots *s) {
    size_t bytes = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->at[i].tensor->buffer == scratch && s->at[i].end > bytes) bytes = s->at[i].end;
    return bytes ? scratch->device->alloc(scratch->device, scratch, bytes) : KVANT_OK;
}

kv_status kv_scratch_bind(const kv_graph *g, const kv_placement *p, const int32_t *stage_of) {
    slots s = {.at = kv_alloc(g->scratch.count, sizeof *s.at)};
    if (!s.at) return KVANT_NO_MEMORY;
    collect(&s, g, p, stage_of);
    for (size_t i = 0; i < s.n; i++) place(&s, i);
    kv_status status = KVANT_OK;
    for (int32_t i = 0; !status && i < p->n_devices; i++) status = allocate(&p->scratch[i], &s);
    kv_free(s.at);
    return status;
}

void kv_scratch_release(kv_placement *p) {
    for (int32_t i = 0; i < p->n_devices; i++)
        if (p->scratch[i].bytes) p->scratch[i].device->release(&p->scratch[i]);
}
