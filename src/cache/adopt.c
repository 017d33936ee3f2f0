/* adopt.c: a sequence is given positions that were saved, in place of what it has. All that can fail comes
 * first; the cells that the sequence alone holds count as free. */
#include "cache/group.h"

/* In order, at positions that are legal; *n_cells without those that are released. */
static kv_status check_list(const kv_span_list *l, int64_t *n_cells) {
    *n_cells = 0;
    for (size_t i = 0; i < l->count; i++) {
        const kv_span *s = &l->at[i];
        int64_t pos;
        if (s->n_cells < 1 || s->stored < -(INT64_MAX / 4) || s->stored > INT64_MAX / 4 ||
            __builtin_add_overflow(s->stored, s->turn, &pos) || pos < 0 || pos > INT64_MAX / 4 ||
            (i && pos < kv_span_end(s - 1) - 1))
            return kv_fail(KVANT_INVALID, "span %zu: %d cells at stored position %lld, turn %lld", i,
                           s->n_cells, (long long)s->stored, (long long)s->turn);
        if (!kv_span_released(s)) *n_cells += s->n_cells;
    }
    return KVANT_OK;
}

/* Both name the same positions, in order. */
static bool same_positions(const kv_span_list *a, const kv_span_list *b) {
    size_t i = 0, j = 0;
    int32_t at_a = 0, at_b = 0; /* cells of span i and j that are done */
    while (i < a->count && j < b->count) {
        if (kv_span_pos(&a->at[i]) + at_a != kv_span_pos(&b->at[j]) + at_b) return false;
        int32_t left_a = a->at[i].n_cells - at_a, left_b = b->at[j].n_cells - at_b;
        int32_t n = left_a < left_b ? left_a : left_b;
        at_a = n < left_a ? at_a + n : 0;
        at_b = n < left_b ? at_b + n : 0;
        i += !at_a;
        j += !at_b;
    }
    return i == a->count && j == b->count;
}

static kv_status check_lists(const kv_span_list *lists, int32_t n_groups) {
    for (int32_t i = 0; i < n_groups; i++) {
        int64_t n_cells, n_all = 0;
        KV_TRY(check_list(&lists[i], &n_cells));
        if (!same_positions(&lists[0], &lists[i]))
            return kv_fail(KVANT_INVALID, "spans of group %d and group 0: other positions", i);
        for (size_t k = 0; k < lists[0].count; k++) n_all += lists[0].at[k].n_cells;
        if (!i && n_cells < n_all) return kv_fail(KVANT_INVALID, "spans of group 0: some are released");
    }
    return KVANT_OK;
}

static int64_t end_of(const kv_span_list *l) { return l->count ? kv_span_end(&l->at[l->count - 1]) : 0; }

/* A window takes no more than it would have kept. */
static bool takes(const kv_group *g, const kv_span *s, int32_t i, int64_t end) {
    int64_t pos = kv_span_pos(s) + i;
    return !kv_span_released(s) && (!g->window || pos < g->n_pin || pos >= kv_group_held_from(g, end));
}

static int64_t count_taken(const kv_group *g, const kv_span_list *l) {
    int64_t n = 0, end = end_of(l);
    for (size_t i = 0; i < l->count; i++)
        for (int32_t k = 0; k < l->at[i].n_cells; k++) n += takes(g, &l->at[i], k, end);
    return n;
}

/* Cells that no other sequence holds. */
static int64_t count_own(const kv_group *g, const kv_spans *s) {
    int64_t n = 0;
    for (size_t i = 0; i < s->list.count; i++)
        for (int32_t k = 0; !kv_span_released(&s->list.at[i]) && k < s->list.at[i].n_cells; k++)
            n += g->cells.refs[s->list.at[i].first_cell + k] == 1;
    return n;
}

static kv_status check_group(const kv_group *g, int32_t seq, const kv_span_list *l) {
    const kv_edit none = {0};
    const kv_spans view = {.list = {.at = (kv_span *)l->at, .count = l->count}};
    int64_t need = count_taken(g, l), have = g->cells.n_free + count_own(g, &g->sequences[seq]);
    if (need > have)
        return kv_fail(KVANT_CONTEXT_FULL, "context is too small: %lld cells to restore, room for %lld of %d",
                       (long long)need, (long long)have, g->cells.n_cells);
    kv_extent extent = kv_spans_extent(&view, &none);
    if (kv_group_misses(g, &extent))
        return kv_fail(KVANT_UNSUPPORTED, "released below %lld, a window of %d that ends at %lld needs more",
                       (long long)extent.released_end, g->window, (long long)extent.end);
    return KVANT_OK;
}

static void adopt_list(kv_group *g, kv_spans *s, const kv_span_list *l) {
    int64_t end = end_of(l);
    for (size_t i = 0; i < l->count; i++)
        for (int32_t k = 0; k < l->at[i].n_cells; k++) {
            const kv_span *last = s->list.count ? &s->list.at[s->list.count - 1] : NULL;
            int32_t wish = last && !kv_span_released(last) ? last->first_cell + last->n_cells : -1;
            int32_t cell = takes(g, &l->at[i], k, end) ? kv_cells_take(&g->cells, wish) : -1;
            kv_spans_push(s, cell, l->at[i].stored + k, l->at[i].turn);
        }
}

kv_status kv_groups_adopt(kv_group *groups, int32_t n_groups, int32_t seq, const kv_span_list *lists) {
    const kv_edit all = {.p1 = INT64_MAX, .erase = true};
    KV_TRY(check_lists(lists, n_groups));
    for (int32_t i = 0; i < n_groups; i++) {
        kv_spans *s = &groups[i].sequences[seq];
        size_t most = 4; /* as after any other operation; and each cell may lie on its own */
        for (size_t k = 0; k < lists[i].count; k++) most += (size_t)lists[i].at[k].n_cells;
        KV_TRY(check_group(&groups[i], seq, &lists[i]));
        if (!kv_vec_reserve(&s->list, most)) return KVANT_NO_MEMORY;
    }
    for (int32_t i = 0; i < n_groups; i++) {
        kv_group_edit(&groups[i], seq, &all);
        adopt_list(&groups[i], &groups[i].sequences[seq], &lists[i]);
    }
    return KVANT_OK;
}
