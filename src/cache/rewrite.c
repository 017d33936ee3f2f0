/* rewrite.c: from what positions are to be to the cells whose keys have to be rotated for it. The new spans
 * are drafted beside the old ones; cells that other sequences hold too are replaced by free ones. */
#include "cache/group.h"

#include <string.h>

/* What the key of cell i of a span is rotated by. */
static int64_t delta_of(const kv_rewrite *r, const kv_span *s, int32_t i) {
    int64_t pos = kv_span_pos(s) + i;
    if (!r->divisor) return s->turn - r->frame;
    return pos >= r->p0 && pos < r->p1 ? pos / r->divisor - pos : 0;
}

static bool is_shared(const kv_group *g, const kv_span *s, int32_t i) {
    return !kv_span_released(s) && g->cells.refs[s->first_cell + i] > 1;
}

static bool is_rotated(const kv_group *g, const kv_rewrite *r, const kv_span *s, int32_t i) {
    return g->roped && !kv_span_released(s) && delta_of(r, s, i) != 0;
}

/* Cells to rotate, those of them to copy, and spans that the draft has at most. */
typedef struct sizes {
    size_t turned, copied, spans;
} sizes;

static sizes measure(const kv_group *g, const kv_rewrite *r) {
    sizes n = {0, 0, g->edited.list.count + 2};
    for (size_t k = 0; k < g->edited.list.count; k++) {
        const kv_span *s = &g->edited.list.at[k];
        for (int32_t i = 0; i < s->n_cells; i++) {
            bool rotated = is_rotated(g, r, s, i), copied = rotated && is_shared(g, s, i);
            n.turned += rotated;
            n.copied += copied;
            n.spans += copied ? 2 : r->divisor > 0;
        }
    }
    return n;
}

static kv_status reserve(kv_group *g, const sizes *n) {
    g->draft.list.count = 0;
    g->draft.n_cells = 0;
    bool room = kv_vec_reserve(&g->draft.list, n->spans) && kv_vec_reserve(&g->turned, n->turned) &&
                kv_vec_reserve(&g->deltas, n->turned) && kv_vec_reserve(&g->from, n->copied) &&
                kv_vec_reserve(&g->to, n->copied);
    return room ? KVANT_OK : KVANT_NO_MEMORY;
}

/* A cell of its own for one that is shared. */
static int32_t take_copy(kv_group *g, int32_t cell) {
    int32_t wish = g->to.count ? g->to.at[g->to.count - 1] + 1 : -1;
    int32_t copy = kv_cells_take(&g->cells, wish);
    g->cells.tokens[copy] = g->cells.tokens[cell];
    g->from.at[g->from.count++] = cell;
    g->to.at[g->to.count++] = copy;
    return copy;
}

static void draft_cell(kv_group *g, const kv_rewrite *r, const kv_span *s, int32_t i) {
    int64_t delta = delta_of(r, s, i), turn = r->divisor ? s->turn : r->frame;
    int32_t cell = kv_span_released(s) ? -1 : s->first_cell + i;
    if (is_rotated(g, r, s, i)) {
        if (is_shared(g, s, i)) cell = take_copy(g, cell);
        g->turned.at[g->turned.count++] = cell;
        g->deltas.at[g->deltas.count++] = delta;
    }
    kv_spans_push(&g->draft, cell, s->stored + i + delta, turn);
}

static kv_status copy_spans(kv_spans *to, const kv_spans *from) {
    to->list.count = 0;
    KV_TRY(kv_spans_reserve(to, from->list.count + 4));
    memcpy(to->list.at, from->list.at, from->list.count * sizeof *to->list.at);
    to->list.count = from->list.count;
    to->n_cells = from->n_cells;
    return KVANT_OK;
}

kv_status kv_group_begin_rewrite(kv_group *g, int32_t seq, const kv_rewrite *r) {
    KV_TRY(copy_spans(&g->edited, &g->sequences[seq]));
    kv_spans_edit(&g->edited, &r->edit, NULL);
    sizes n = measure(g, r);
    if (n.copied > (size_t)g->cells.n_free)
        return kv_fail(KVANT_CONTEXT_FULL,
                       "context is full: %zu cells are shared and must be copied, %d of %d are free",
                       n.copied, g->cells.n_free, g->cells.n_cells);
    KV_TRY(reserve(g, &n));
    for (size_t k = 0; k < g->edited.list.count; k++)
        for (int32_t i = 0; i < g->edited.list.at[k].n_cells; i++) draft_cell(g, r, &g->edited.list.at[k], i);
    kv_spans_sort(&g->draft);
    kv_spans_join(&g->draft);
    g->moves = (kv_cell_moves){(int32_t)g->from.count, g->from.at, g->to.at};
    g->rotation = (kv_cell_turns){(int32_t)g->turned.count, g->turned.at, g->deltas.at};
    return KVANT_OK;
}

static void end_rewrite(kv_group *g) {
    g->from.count = g->to.count = g->turned.count = g->deltas.count = 0;
    g->moves = (kv_cell_moves){0};
    g->rotation = (kv_cell_turns){0};
}

void kv_group_abort_rewrite(kv_group *g) {
    for (size_t i = 0; i < g->to.count; i++) kv_cells_drop(&g->cells, g->to.at[i], 1);
    end_rewrite(g);
}

static void count_spans(kv_group *g, const kv_spans *s,
                        void (*count)(kv_cells *c, int32_t first, int32_t n)) {
    for (size_t i = 0; i < s->list.count; i++)
        if (!kv_span_released(&s->list.at[i]))
            count(&g->cells, s->list.at[i].first_cell, s->list.at[i].n_cells);
}

void kv_group_commit_rewrite(kv_group *g, int32_t seq) {
    kv_spans *s = &g->sequences[seq], old = *s;
    count_spans(g, &g->draft, kv_cells_share);
    count_spans(g, &old, kv_cells_drop);
    *s = g->draft;
    g->draft = old;
    kv_group_abort_rewrite(g); /* copies are the sequence's now, and no longer the rewrite's */
}
