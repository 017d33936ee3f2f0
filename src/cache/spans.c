/* spans.c: splitting, joining, appending, order. */
#include "cache/spans.h"

#include <string.h>

int64_t kv_spans_end(const kv_spans *s) {
    return s->list.count ? kv_span_end(&s->list.at[s->list.count - 1]) : 0;
}

/* The part [begin, end) of a span, unless it is empty, lies `delta` higher. */
static void extend(kv_extent *x, const kv_span *s, int64_t begin, int64_t end, int64_t delta) {
    if (begin >= end) return;
    if (end + delta > x->end) x->end = end + delta;
    if (kv_span_released(s) && end + delta > x->released_end) x->released_end = end + delta;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

kv_extent kv_spans_extent(const kv_spans *s, const kv_edit *e) {
    kv_extent x = {0, 0};
    for (size_t i = 0; i < s->list.count; i++) {
        const kv_span *span = &s->list.at[i];
        int64_t begin = kv_span_pos(span), end = kv_span_end(span);
        extend(&x, span, begin, least(end, e->p0), 0);
        if (!e->erase) extend(&x, span, most(begin, e->p0), least(end, e->p1), e->inside);
        extend(&x, span, most(begin, e->p1), end, e->behind);
    }
    return x;
}

kv_status kv_spans_reserve(kv_spans *s, size_t extra) {
    return kv_vec_reserve(&s->list, s->list.count + extra) ? KVANT_OK : KVANT_NO_MEMORY;
}

size_t kv_spans_split(kv_spans *s, int64_t pos) {
    size_t i = 0;
    while (i < s->list.count && kv_span_end(&s->list.at[i]) <= pos) i++;
    if (i == s->list.count || kv_span_pos(&s->list.at[i]) >= pos) return i;
    kv_span *a = &s->list.at[i];
    memmove(a + 1, a, (s->list.count - i) * sizeof *a);
    s->list.count++;
    int32_t n = (int32_t)(pos - kv_span_pos(a));
    a[0].n_cells = n;
    if (!kv_span_released(a)) a[1].first_cell += n;
    a[1].n_cells -= n;
    a[1].stored += n;
    return i + 1;
}

static bool runs_on(const kv_span *a, const kv_span *b) {
    bool cells = kv_span_released(a) || kv_span_released(b) ? a->first_cell == b->first_cell
                                                            : a->first_cell + a->n_cells == b->first_cell;
    return cells && a->turn == b->turn && a->stored + a->n_cells == b->stored;
}

void kv_spans_push(kv_spans *s, int32_t cell, int64_t stored, int64_t turn) {
    kv_span next = {.first_cell = cell, .n_cells = 1, .stored = stored, .turn = turn};
    kv_span *last = s->list.count ? &s->list.at[s->list.count - 1] : NULL;
    s->n_cells++;
    if (last && runs_on(last, &next))
        last->n_cells++;
    else
        s->list.at[s->list.count++] = next;
}

void kv_spans_append(kv_spans *s, int32_t cell) {
    const kv_span *last = s->list.count ? &s->list.at[s->list.count - 1] : NULL;
    kv_spans_push(s, cell, last ? last->stored + last->n_cells : 0, last ? last->turn : 0);
}

void kv_spans_erase(kv_spans *s, size_t first, size_t last) {
    for (size_t i = first; i < last; i++) s->n_cells -= s->list.at[i].n_cells;
    memmove(s->list.at + first, s->list.at + last, (s->list.count - last) * sizeof *s->list.at);
    s->list.count -= last - first;
}

bool kv_spans_clip(const kv_spans *s, int64_t *p0, int64_t *p1) {
    int64_t first = *p1, last = *p0;
    for (size_t i = 0; i < s->list.count; i++) {
        int64_t begin = kv_span_pos(&s->list.at[i]), end = kv_span_end(&s->list.at[i]);
        if (end <= *p0 || begin >= *p1) continue;
        if (begin < first) first = most(begin, *p0);
        if (end > last) last = least(end, *p1);
    }
    if (first >= last) return false;
    *p0 = first;
    *p1 = last;
    return true;
}

void kv_spans_turn(kv_spans *s, int64_t p0, int64_t p1, int64_t delta) {
    size_t first = kv_spans_split(s, p0), last = kv_spans_split(s, p1);
    for (size_t i = first; i < last; i++) s->list.at[i].turn += delta;
    kv_spans_sort(s);
    kv_spans_join(s);
}

/* By insertion: lists are sorted already, but for a block that jumped. Stable: cells that share a position
 * stay in order. */
void kv_spans_sort(kv_spans *s) {
    for (size_t i = 1; i < s->list.count; i++) {
        kv_span span = s->list.at[i];
        size_t j = i;
        for (; j > 0 && kv_span_pos(&s->list.at[j - 1]) > kv_span_pos(&span); j--)
            s->list.at[j] = s->list.at[j - 1];
        s->list.at[j] = span;
    }
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
