/* merge.c: the symbol list and its binary heap. A pair is not removed from the heap when one of its symbols
 * is joined elsewhere; it is recognized when it comes up, since its left symbol is gone or the two have
 * another size: symbols only grow. */
#include "text/merge.h"

kv_status kv_merge_add(kv_merger *m, int32_t size, int32_t id) {
    int32_t i = (int32_t)m->symbols.count;
    kv_symbol s = {.prev = i - 1, .next = -1, .size = size, .id = id};
    if (i) s.start = m->symbols.at[i - 1].start + m->symbols.at[i - 1].size;
    if (!kv_vec_push(&m->symbols, s)) return KVANT_NO_MEMORY;
    if (i) m->symbols.at[i - 1].next = i;
    return KVANT_OK;
}

static bool heap_push(kv_merger *m, kv_merge_pair pair) {
    if (!kv_vec_push(&m->heap, pair)) return false;
    kv_merge_pair *heap = m->heap.at;
    size_t i = m->heap.count - 1;
    for (; i > 0 && heap[(i - 1) / 2].order > pair.order; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = pair;
    return true;
}

static kv_merge_pair heap_pop(kv_merger *m) {
    kv_merge_pair *heap = m->heap.at, top = heap[0], last = heap[--m->heap.count];
    size_t n = m->heap.count, i = 0;
    for (size_t child = 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && heap[child + 1].order < heap[child].order) child++;
        if (heap[child].order >= last.order) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* Offers the pair of symbol `left` and its right neighbour. */
static kv_status offer(kv_merger *m, int32_t left, kv_merge_rule rule, const void *context) {
    if (left < 0) return KVANT_OK;
    const kv_symbol *a = &m->symbols.at[left];
    if (a->next < 0) return KVANT_OK;
    const kv_symbol *b = &m->symbols.at[a->next];
    uint32_t order;
    kv_merge_pair pair = {.size = a->size + b->size};
    if (!rule(context, a, b, &order, &pair.id)) return KVANT_OK;
    pair.order = (uint64_t)order << 32 | (uint32_t)left;
    return heap_push(m, pair) ? KVANT_OK : KVANT_NO_MEMORY;
}

kv_status kv_merge_run(kv_merger *m, kv_merge_rule rule, const void *context) {
    kv_symbol *s = m->symbols.at;
    m->heap.count = 0;
    for (size_t i = 1; i < m->symbols.count; i++) KV_TRY(offer(m, (int32_t)i - 1, rule, context));
    while (m->heap.count) {
        kv_merge_pair pair = heap_pop(m);
        int32_t left = (int32_t)(uint32_t)pair.order, right = s[left].next;
        if (s[left].size == 0 || right < 0 || s[left].size + s[right].size != pair.size) continue;
        s[left].size = pair.size;
        s[left].id = pair.id;
        s[left].next = s[right].next;
        if (s[right].next >= 0) s[s[right].next].prev = left;
        s[right].size = 0;
        KV_TRY(offer(m, s[left].prev, rule, context));
        KV_TRY(offer(m, left, rule, context));
    }
    return KVANT_OK;
}

void kv_merge_restart(kv_merger *m) { m->symbols.count = 0; }

void kv_merger_clear(kv_merger *m) {
    kv_vec_clear(&m->symbols);
    kv_vec_clear(&m->heap);
}
