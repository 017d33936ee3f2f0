/* group.c: edits, releases, appends and views of one group. */
#include "cache/group.h"

#include <string.h>

kv_status kv_group_init(kv_group *g, const kv_cache_spec *spec, int32_t n_cells) {
    size_t n_batch = (size_t)spec->n_batch, n_seqs = (size_t)spec->n_sequences;
    KV_TRY(kv_cells_init(&g->cells, n_cells, KV_PAGE_CELLS));
    g->n_sequences = spec->n_sequences;
    g->sequences = kv_alloc(n_seqs, sizeof *g->sequences);
    g->seqs = kv_alloc(n_seqs, sizeof *g->seqs);
    g->pos = kv_alloc(n_batch, sizeof *g->pos);
    g->stored = kv_alloc(n_batch, sizeof *g->stored);
    g->cell_of = kv_alloc(n_batch, sizeof *g->cell_of);
    if (!g->sequences || !g->seqs || !g->pos || !g->stored || !g->cell_of) return KVANT_NO_MEMORY;
    g->batch = (kv_batch_view){.pos = g->pos, .cells = g->cell_of, .seqs = g->seqs};
    g->angles = (kv_angles){.stored = g->stored};
    /* enough for a context in page-sized pieces: appending allocates only for one more torn than that */
    size_t spans = (size_t)(n_cells / KV_PAGE_CELLS + 24);
    for (int32_t i = 0; i < spec->n_sequences; i++) KV_TRY(kv_spans_reserve(&g->sequences[i], spans));
    bool room = kv_vec_reserve(&g->runs, spans) && kv_vec_reserve(&g->turns, 16);
    return room ? KVANT_OK : KVANT_NO_MEMORY;
}

void kv_group_clear(kv_group *g) {
    for (int32_t i = 0; g->sequences && i < g->n_sequences; i++) kv_vec_clear(&g->sequences[i].list);
    kv_cells_clear(&g->cells);
    kv_vec_clear(&g->runs);
    kv_vec_clear(&g->turns);
    kv_vec_clear(&g->edited.list);
    kv_vec_clear(&g->draft.list);
    kv_vec_clear(&g->from);
    kv_vec_clear(&g->to);
    kv_vec_clear(&g->turned);
    kv_vec_clear(&g->deltas);
    void *tables[] = {g->sequences, g->seqs, g->pos, g->stored, g->cell_of};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) kv_free(tables[i]);
    *g = (kv_group){0};
}

/* ---- edits ---- */

static void drop_cells(kv_cells *cells, const kv_span *s, int32_t first) {
    if (cells && !kv_span_released(s)) kv_cells_drop(cells, s->first_cell + first, s->n_cells - first);
}

static void erase_range(kv_spans *s, int64_t p0, int64_t p1, kv_cells *cells) {
    size_t first = kv_spans_split(s, p0), last = kv_spans_split(s, p1);
    for (size_t i = first; i < last; i++) drop_cells(cells, &s->list.at[i], 0);
    kv_spans_erase(s, first, last);
}

/* All from p0 on, span by span from the end: nothing is split, so no memory is needed. */
static void cut_end(kv_spans *s, int64_t p0, kv_cells *cells) {
    while (s->list.count && kv_spans_end(s) > p0) {
        kv_span *last = &s->list.at[s->list.count - 1];
        int32_t stay = kv_span_pos(last) < p0 ? (int32_t)(p0 - kv_span_pos(last)) : 0;
        drop_cells(cells, last, stay);
        s->n_cells -= last->n_cells - stay;
        last->n_cells = stay;
        if (!stay) s->list.count--;
    }
}

void kv_spans_edit(kv_spans *s, const kv_edit *e, kv_cells *cells) {
    if (e->erase && e->p1 >= kv_spans_end(s))
        cut_end(s, e->p0, cells);
    else if (e->erase && e->p0 < e->p1)
        erase_range(s, e->p0, e->p1, cells);
    if (e->inside) kv_spans_turn(s, e->p0, e->p1, e->inside);
    if (e->behind) kv_spans_turn(s, e->p1, INT64_MAX, e->behind);
}

void kv_group_edit(kv_group *g, int32_t seq, const kv_edit *e) {
    kv_spans_edit(&g->sequences[seq], e, &g->cells);
}

void kv_group_copy(kv_group *g, int32_t to, int32_t from) {
    kv_spans *a = &g->sequences[to];
    const kv_spans *b = &g->sequences[from];
    for (size_t i = 0; i < b->list.count; i++)
        if (!kv_span_released(&b->list.at[i]))
            kv_cells_share(&g->cells, b->list.at[i].first_cell, b->list.at[i].n_cells);
    cut_end(a, 0, &g->cells);
    memcpy(a->list.at, b->list.at, b->list.count * sizeof *a->list.at);
    a->list.count = b->list.count;
    a->n_cells = b->n_cells;
}

/* ---- windows ---- */

bool kv_group_misses(const kv_group *g, const kv_extent *x) {
    return g->window && x->released_end > 0 && x->released_end > x->end - g->window + 1;
}

void kv_group_release(kv_group *g, kv_spans *s, int64_t from) {
    int64_t behind = kv_group_held_from(g, kv_spans_end(s));
    if (!g->window || behind <= from) return;
    size_t first = kv_spans_split(s, from), last = kv_spans_split(s, behind);
    for (size_t i = first; i < last; i++) {
        drop_cells(&g->cells, &s->list.at[i], 0);
        s->list.at[i].first_cell = -1;
    }
    kv_spans_join(s);
}

/* ---- appending ---- */

kv_status kv_group_reserve(kv_group *g, const kv_cache_part *parts, int32_t n_parts) {
    size_t spans = 0;
    for (int32_t i = 0; i < n_parts; i++) {
        kv_spans *s = &g->sequences[parts[i].seq];
        /* each token in a cell of its own, at worst; and what releases before and behind it split */
        KV_TRY(kv_spans_reserve(s, (size_t)parts[i].n_tokens + 6));
        spans += s->list.count + (size_t)parts[i].n_tokens + 6;
    }
    bool room = kv_vec_reserve(&g->runs, spans) && kv_vec_reserve(&g->turns, spans);
    return room ? KVANT_OK : KVANT_NO_MEMORY;
}

static void append_tokens(kv_group *g, kv_spans *s, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++) {
        const kv_span *last = s->list.count ? &s->list.at[s->list.count - 1] : NULL;
        bool runs_on = last && !kv_span_released(last);
        g->cell_of[i] = kv_cells_take(&g->cells, runs_on ? last->first_cell + last->n_cells : -1);
        g->pos[i] = kv_spans_end(s);
        kv_spans_append(s, g->cell_of[i]);
        g->stored[i] = g->pos[i] - s->list.at[s->list.count - 1].turn;
    }
}

/* The row behind the tokens' that turns by `delta`, added if it is new; -1 for no turn. Room was made. */
static int32_t turn_row(kv_group *g, int64_t delta) {
    if (delta == 0) return -1;
    size_t i = 0;
    while (i < g->turns.count && g->turns.at[i] != delta) i++;
    if (i == g->turns.count) g->turns.at[g->turns.count++] = delta;
    return g->batch.n_tokens + (int32_t)i;
}

static void view_sequence(kv_group *g, const kv_spans *s, kv_seq_view *view) {
    int64_t frame = s->list.at[s->list.count - 1].turn;
    view->first_run = (int32_t)g->runs.count;
    view->n_cells = 0;
    for (size_t i = 0; i < s->list.count; i++) {
        const kv_span *span = &s->list.at[i];
        if (kv_span_released(span)) continue;
        view->n_cells += span->n_cells;
        g->runs.at[g->runs.count++] = (kv_run){.first_cell = span->first_cell,
                                               .n_cells = span->n_cells,
                                               .pos = kv_span_pos(span),
                                               .stored = span->stored,
                                               .turn = turn_row(g, frame - span->turn)};
    }
    view->n_runs = (int32_t)g->runs.count - view->first_run;
}

void kv_group_append(kv_group *g, const kv_cache_part *parts, int32_t n_parts) {
    g->batch.n_tokens = 0;
    g->batch.n_seqs = n_parts;
    for (int32_t i = 0; i < n_parts; i++) {
        g->seqs[i] = (kv_seq_view){.first_token = g->batch.n_tokens, .n_tokens = parts[i].n_tokens};
        append_tokens(g, &g->sequences[parts[i].seq], g->batch.n_tokens, parts[i].n_tokens);
        g->batch.n_tokens += parts[i].n_tokens;
    }
    g->runs.count = g->turns.count = 0;
    for (int32_t i = 0; i < n_parts; i++) view_sequence(g, &g->sequences[parts[i].seq], &g->seqs[i]);
    g->batch.runs = g->runs.at;
    g->angles.n_tokens = g->batch.n_tokens;
    g->angles.n_turns = (int32_t)g->turns.count;
    g->angles.turns = g->turns.at;
}
