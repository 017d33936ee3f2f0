/* spans.c: splitting, joining, appending, order. */
#include "cache/spans.h"

#include <string.h>

int64_t kv_spans_end(const kv_spans *s) {
    if (!s->list.count) return 0;
    const kv_span *last = &s->list.at[s->list.count - 1];
    return kv_span_pos(last) + last->n_cells;
}

kv_status kv_spans_reserve(kv_spans *s, size_t extra) {
    return kv_vec_reserve(&s->list, s->list.count + extra) ? KVANT_OK : KVANT_NO_MEMORY;
}

size_t kv_spans_split(kv_spans *s, int64_t pos) {
    size_t i = 0;
    while (i < s->list.count && kv_span_pos(&s->list.at[i]) + s->list.at[i].n_cells <= pos) i++;
    if (i == s->list.count || kv_span_pos(&s->list.at[i]) >= pos) return i;
    kv_span *a = &s->list.at[i];
    memmove(a + 1, a, (s->list.count - i) * sizeof *a);
    s->list.count++;
    int32_t n = (int32_t)(pos - kv_span_pos(a));
    a[0].n_cells = n;
    a[1].first_cell += n;
    a[1].n_cells -= n;
    a[1].stored += n;
    return i + 1;
}

void kv_spans_append(kv_spans *s, int32_t cell) {
    kv_span *last = s->list.count ? &s->list.at[s->list.count - 1] : NULL;
    s->n_cells++;
    if (last && last->first_cell + last->n_cells == cell) {
        last->n_cells++;
        return;
    }
    kv_span next = {.first_cell = cell, .n_cells = 1};
    if (last) next.stored = last->stored + last->n_cells, next.turn = last->turn;
    s->list.at[s->list.count++] = next;
}

void kv_spans_erase(kv_spans *s, size_t first, size_t last) {
    for (size_t i = first; i < last; i++) s->n_cells -= s->list.at[i].n_cells;
    memmove(s->list.at + first, s->list.at + last, (s->list.count - last) * sizeof *s->list.at);
    s->list.count -= last - first;
}

bool kv_spans_clip(const kv_spans *s, int64_t *p0, int64_t *p1) {
    int64_t first = *p1, last = *p0;
    for (size_t i = 0; i < s->list.count; i++) {
        int64_t begin = kv_span_pos(&s->list.at[i]), end = begin + s->list.at[i].n_cells;
        if (end <= *p0 || begin >= *p1) continue;
        if (begin < first) first = begin > *p0 ? begin : *p0;
        if (end > last) last = end < *p1 ? end : *p1;
    }
    if (first >= last) return false;
    *p0 = first;
    *p1 = last;
    return true;
}

/* By insertion: lists are sorted already, but for a block that jumped. */
void kv_spans_sort(kv_spans *s) {
    for (size_t i = 1; i < s->list.count; i++) {
        kv_span span = s->list.at[i];
        size_t j = i;
        for (; j > 0 && kv_span_pos(&s->list.at[j - 1]) > kv_span_pos(&span); j--)
            s->list.at[j] = s->list.at[j - 1];
        s->list.at[j] = span;
    }
}

static bool runs_on(const kv_span *a, const kv_span *b) {
    return a->turn == b->turn && a->stored + a->n_cells == b->stored &&
           a->first_cell + a->n_cells == b->first_cell;
}

void kv_spans_join(kv_spans *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->list.count; i++) {
        if (n && runs_on(&s->list.at[n - 1], &s->list.at[i]))
            s->list.at[n - 1].n_cells += s->list.at[i].n_cells;
        else
            s->list.at[n++] = s->list.at[i];
    }
    s->list.count = n;
}
