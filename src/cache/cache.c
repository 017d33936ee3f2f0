/* cache.c: stores and groups, and operations on sequences: legal in every group, with memory for all of it,
 * or nothing is done. */
#include "cache/cache.h"

#include "cache/cell_tokens.h"
#include "cache/group.h"

#include <stdio.h>
#include <string.h>

struct kv_cache {
    kv_cache_layer *layers;
    kv_store *stores;
    int32_t *group_of; /* of each layer */
    kv_group *groups;
    int64_t *committed; /* end of each sequence at the last commit */
    int32_t n_layers, n_groups, n_sequences, n_batch;
    bool can_turn;
    int32_t rewritten; /* sequence of the rewrite that has begun */
};

/* ---- creation ---- */

static kv_head_code k_code(const kv_cache_layer *l) {
    return kv_head_code_of(l->k_dtype, l->k_dim, l->k_rotated);
}
static kv_head_code v_code(const kv_cache_layer *l) {
    return kv_head_code_of(l->v_dtype, l->v_dim, l->v_rotated);
}

size_t kv_cache_layer_bytes(const kv_cache_layer *l) {
    return kv_dtype_bytes(l->k_dtype, (int64_t)l->n_kv_heads * k_code(l).width) +
           kv_dtype_bytes(l->v_dtype, (int64_t)l->n_kv_heads * v_code(l).width);
}

/* A sequence at rest has a window, a margin and its pins; while it is evaluated, a window and a margin more:
 * those at rest stay until the commit, so that the evaluation can be undone. */
int32_t kv_cache_window_cells(const kv_cache_spec *spec, int32_t window) {
    if (!window || spec->margin < 0) return spec->n_cells;
    int64_t tail = (int64_t)window + spec->margin;
    int64_t cells = spec->n_sequences * (2 * tail + spec->n_pin) + spec->n_batch;
    cells = (int64_t)kv_round_up((size_t)cells, KV_PAGE_CELLS);
    return cells < spec->n_cells ? (int32_t)cells : spec->n_cells;
}

static kv_status create_tensor(kv_tensor *t, const kv_cache_layer *layer, const kv_dtype *d,
                               const kv_layout *l, int64_t cols) {
    t->dtype = d;
    t->layout = l;
    t->cols = cols;
    kv_buffer *buffer = kv_alloc(1, sizeof *buffer);
    if (!buffer) return KVANT_NO_MEMORY;
    t->buffer = buffer;
    return layer->device->alloc(layer->device, buffer, kv_tensor_bytes(t));
}

static kv_status create_store(kv_cache *c, int32_t i) {
    const kv_cache_layer *l = &c->layers[i];
    kv_store *s = &c->stores[i];
    *s = (kv_store){
        .n_kv_heads = l->n_kv_heads, .k_head = k_code(l), .v_head = v_code(l), .centre = l->centre};
    s->k.rows = s->v.rows = c->groups[c->group_of[i]].cells.n_cells;
    int64_t k_cols = (int64_t)l->n_kv_heads * s->k_head.width,
            v_cols = (int64_t)l->n_kv_heads * s->v_head.width;
    KV_TRY(create_tensor(&s->k, l, l->k_dtype, l->k_layout, k_cols));
    return create_tensor(&s->v, l, l->v_dtype, l->v_layout, v_cols);
}

/* The group of a window, made if there is none yet. Group 0 is there without layers too: it knows what a
 * sequence consists of. */
static kv_status find_group(kv_cache *c, const kv_cache_spec *spec, int32_t window, int32_t *index) {
    int32_t n_cells = kv_cache_window_cells(spec, window), i = 0;
    if (n_cells == spec->n_cells) window = 0;
    while (i < c->n_groups && c->groups[i].window != window) i++;
    *index = i;
    if (i < c->n_groups) return KVANT_OK;
    kv_group *g = &c->groups[c->n_groups++];
    *g = (kv_group){.window = window, .margin = spec->margin, .n_pin = spec->n_pin};
    return kv_group_init(g, spec, n_cells);
}

static kv_status create(kv_cache *c, const kv_cache_spec *spec) {
    size_t n_layers = (size_t)spec->n_layers;
    c->layers = kv_alloc(n_layers, sizeof *c->layers);
    c->stores = kv_alloc(n_layers, sizeof *c->stores);
    c->group_of = kv_alloc(n_layers, sizeof *c->group_of);
    c->groups = kv_alloc(n_layers + 1, sizeof *c->groups);
    c->committed = kv_alloc((size_t)spec->n_sequences, sizeof *c->committed);
    if (!c->layers || !c->stores || !c->group_of || !c->groups || !c->committed) return KVANT_NO_MEMORY;
    memcpy(c->layers, spec->layers, n_layers * sizeof *c->layers);
    int32_t first;
    KV_TRY(find_group(c, spec, 0, &first));
    for (int32_t i = 0; i < c->n_layers; i++) {
        KV_TRY(find_group(c, spec, c->layers[i].window, &c->group_of[i]));
        if (c->layers[i].roped) c->groups[c->group_of[i]].roped = true;
        KV_TRY(create_store(c, i));
    }
    return KVANT_OK;
}

kv_status kv_cache_create(kv_cache **out, const kv_cache_spec *spec) {
    kv_cache *c = kv_alloc(1, sizeof *c);
    if (!c) return KVANT_NO_MEMORY;
    *c = (kv_cache){.n_layers = spec->n_layers,
                    .n_sequences = spec->n_sequences,
                    .n_batch = spec->n_batch,
                    .can_turn = spec->can_turn};
    kv_status status = create(c, spec);
    if (status)
        kv_cache_destroy(c);
    else
        *out = c;
    return status;
}

static void destroy_tensor(kv_tensor *t) {
    kv_buffer *buffer = (kv_buffer *)t->buffer;
    if (buffer && buffer->device) buffer->device->release(buffer);
    kv_free(buffer);
}

void kv_cache_destroy(kv_cache *c) {
    if (!c) return;
    for (int32_t i = 0; c->stores && i < c->n_layers; i++) {
        destroy_tensor(&c->stores[i].k);
        destroy_tensor(&c->stores[i].v);
    }
    for (int32_t i = 0; i < c->n_groups; i++) kv_group_clear(&c->groups[i]);
    void *tables[] = {c->layers, c->stores, c->group_of, c->groups, c->committed};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) kv_free(tables[i]);
    kv_free(c);
}

kv_store *kv_cache_store(kv_cache *c, int32_t layer) { return &c->stores[layer]; }

int32_t kv_cache_n_groups(const kv_cache *c) { return c->n_groups; }

int32_t kv_cache_group(const kv_cache *c, int32_t layer) { return c->group_of[layer]; }

int32_t kv_cache_free_cells(const kv_cache *c) { return c->groups[0].cells.n_free; }

int32_t kv_cache_group_cells(const kv_cache *c, int32_t group) { return c->groups[group].cells.n_cells; }

int32_t kv_cache_group_free(const kv_cache *c, int32_t group) { return c->groups[group].cells.n_free; }

kv_cells *kv_cache_cells(const kv_cache *c, int32_t group) { return &c->groups[group].cells; }

int64_t kv_cache_bytes_per_cell(const kv_cache *c) {
    size_t bytes = 0;
    for (int32_t i = 0; i < c->n_layers; i++) bytes += kv_cache_layer_bytes(&c->layers[i]);
    return (int64_t)bytes;
}

/* ---- what sequences are ---- */

static const kv_spans *spans_of(const kv_cache *c, int32_t seq) { return &c->groups[0].sequences[seq]; }

static kv_status check_sequence(const kv_cache *c, int32_t seq) {
    if (seq >= 0 && seq < c->n_sequences) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "sequence %d: must be 0 to %d", seq, c->n_sequences - 1);
}

int64_t kv_cache_begin(const kv_cache *c, int32_t seq) {
    const kv_spans *s = spans_of(c, seq);
    return s->list.count ? kv_span_pos(&s->list.at[0]) : 0;
}

int64_t kv_cache_end(const kv_cache *c, int32_t seq) { return kv_spans_end(spans_of(c, seq)); }

int64_t kv_cache_tokens(const kv_cache *c, int32_t seq) { return spans_of(c, seq)->n_cells; }

kv_span_list kv_cache_spans(const kv_cache *c, int32_t group, int32_t seq) {
    const kv_spans *s = &c->groups[group].sequences[seq];
    return (kv_span_list){s->list.at, s->list.count};
}

/* Cells of the frame that span i is in, if it is the first of its frame; else 0. */
static int64_t cells_of_frame(const kv_spans *s, size_t i) {
    int64_t n = 0;
    for (size_t j = 0; j < s->list.count; j++) {
        if (s->list.at[j].turn != s->list.at[i].turn) continue;
        if (j < i) return 0;
        n += s->list.at[j].n_cells;
    }
    return n;
}

int32_t kv_cache_frames(const kv_cache *c, int32_t seq) {
    int32_t frames = 0;
    for (size_t i = 0; i < spans_of(c, seq)->list.count; i++)
        frames += cells_of_frame(spans_of(c, seq), i) > 0;
    return frames;
}

bool kv_cache_can_turn(const kv_cache *c) {
    if (!c->can_turn) kv_fail(KVANT_UNSUPPORTED, "this model's positions cannot be moved");
    return c->can_turn;
}

/* ---- what is legal ---- */

/* p1 < 0 becomes the end; the range must be in order. */
static kv_status check_range(const kv_cache *c, int32_t seq, int64_t p0, int64_t *p1) {
    KV_TRY(check_sequence(c, seq));
    int64_t end = kv_cache_end(c, seq);
    if (*p1 < 0) *p1 = end > p0 ? end : p0;
    if (p0 >= 0 && p0 <= *p1) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "positions %lld to %lld: not a range", (long long)p0, (long long)*p1);
}

/* A cell of [p0, p1) moved by `delta` would meet one of [begin, end), which stays. */
static bool collides(const kv_spans *s, int64_t p0, int64_t p1, int64_t delta, int64_t begin, int64_t end) {
    if (begin - delta > p0) p0 = begin - delta;
    if (end - delta < p1) p1 = end - delta;
    return begin < end && p0 < p1 && kv_spans_clip(s, &p0, &p1);
}

/* The cells of [p0, p1), which begins and ends with one, must not meet those that stay, nor go below 0. */
static kv_status check_shift(const kv_spans *s, int64_t p0, int64_t p1, int64_t delta) {
    int64_t to0, to1;
    bool overflow = __builtin_add_overflow(p0, delta, &to0) || __builtin_add_overflow(p1, delta, &to1);
    if (overflow || to0 < 0 || to1 > INT64_MAX / 4)
        return kv_fail(KVANT_INVALID, "shift by %lld of positions %lld to %lld: out of range",
                       (long long)delta, (long long)p0, (long long)p1);
    for (size_t i = 0; i < s->list.count; i++) {
        int64_t begin = kv_span_pos(&s->list.at[i]), end = kv_span_end(&s->list.at[i]);
        int64_t before = end < p0 ? end : p0, after = begin > p1 ? begin : p1; /* parts that stay */
        if (collides(s, p0, p1, delta, begin, before) || collides(s, p0, p1, delta, after, end))
            return kv_fail(KVANT_INVALID, "shift by %lld of positions %lld to %lld: tokens stay in the way",
                           (long long)delta, (long long)p0, (long long)p1);
    }
    return KVANT_OK;
}

/* Whether cells of [p0, p1) would share a position of [begin, end), which stays, once they are divided. */
static bool divides_onto(const kv_spans *s, int64_t p0, int64_t p1, int64_t divisor, int64_t begin,
                         int64_t end) {
    int64_t from, to;
    if (begin >= end) return false;
    if (__builtin_mul_overflow(begin, divisor, &from)) return false;
    if (__builtin_mul_overflow(end, divisor, &to)) to = INT64_MAX;
    if (from > p0) p0 = from;
    if (to < p1) p1 = to;
    return p0 < p1 && kv_spans_clip(s, &p0, &p1);
}

static kv_status check_divide(const kv_spans *s, int64_t p0, int64_t p1, int64_t divisor) {
    for (size_t i = 0; i < s->list.count; i++) {
        int64_t begin = kv_span_pos(&s->list.at[i]), end = kv_span_end(&s->list.at[i]);
        int64_t before = end < p0 ? end : p0, after = begin > p1 ? begin : p1; /* parts that stay */
        if (divides_onto(s, p0, p1, divisor, begin, before) || divides_onto(s, p0, p1, divisor, after, end))
            return kv_fail(KVANT_INVALID, "positions %lld to %lld divided by %lld: tokens stay in the way",
                           (long long)p0, (long long)p1, (long long)divisor);
    }
    return KVANT_OK;
}

static kv_status check_turn(const kv_cache *c) { return kv_cache_can_turn(c) ? KVANT_OK : KVANT_UNSUPPORTED; }

static kv_edit cut_at(int64_t pos) { return (kv_edit){.p0 = pos, .p1 = INT64_MAX, .erase = true}; }

/* Of the last span released below `pos`. */
static int64_t begin_of_released(const kv_spans *s, int64_t pos) {
    size_t i = s->list.count;
    while (i > 0 && !(kv_span_released(&s->list.at[i - 1]) && kv_span_pos(&s->list.at[i - 1]) < pos)) i--;
    return i ? kv_span_pos(&s->list.at[i - 1]) : 0;
}

int64_t kv_cache_rewind(const kv_cache *c, int32_t seq, int64_t pos) {
    if (pos > kv_cache_end(c, seq)) pos = kv_cache_end(c, seq);
    for (int32_t i = 1; i < c->n_groups; i++) {
        const kv_group *g = &c->groups[i];
        kv_edit cut = cut_at(pos);
        kv_extent x = kv_spans_extent(&g->sequences[seq], &cut);
        if (!kv_group_misses(g, &x)) continue;
        pos = begin_of_released(&g->sequences[seq], pos);
        i = 0; /* from the first again: it has another end now */
    }
    return pos;
}

/* `x` is what the sequence would be. */
static kv_status missing(const kv_cache *c, const kv_group *g, int32_t seq, const kv_extent *x) {
    const kv_edit none = {0};
    int64_t released = kv_spans_extent(&g->sequences[seq], &none).released_end;
    int64_t whole = released + g->window - 1; /* a query there sees none of them */
    return kv_fail(
        KVANT_UNSUPPORTED,
        "sequence %d would end at %lld, but layers with a window of %d have released what is below "
        "%lld: it can be cut back to %lld, or to %lld and read again from there",
        seq, (long long)x->end, g->window, (long long)released, (long long)whole,
        (long long)kv_cache_rewind(c, seq, whole - 1));
}

static kv_status check_windows(const kv_cache *c, int32_t seq, const kv_edit *e) {
    for (int32_t i = 1; i < c->n_groups; i++) {
        kv_extent x = kv_spans_extent(&c->groups[i].sequences[seq], e);
        if (kv_group_misses(&c->groups[i], &x)) return missing(c, &c->groups[i], seq, &x);
    }
    return KVANT_OK;
}

/* ---- edits ---- */

static kv_status reserve_spans(kv_cache *c, int32_t seq, size_t extra) {
    for (int32_t i = 0; i < c->n_groups; i++) KV_TRY(kv_spans_reserve(&c->groups[i].sequences[seq], extra));
    return KVANT_OK;
}

/* Of all groups; there is room. */
static void edit_groups(kv_cache *c, int32_t seq, const kv_edit *e) {
    for (int32_t i = 0; i < c->n_groups; i++) kv_group_edit(&c->groups[i], seq, e);
    c->committed[seq] = kv_cache_end(c, seq);
}

static kv_status edit(kv_cache *c, int32_t seq, const kv_edit *e) {
    bool cuts = e->erase && e->p1 >= kv_cache_end(c, seq);
    KV_TRY(check_windows(c, seq, e));
    if (!cuts) KV_TRY(reserve_spans(c, seq, 4));
    edit_groups(c, seq, e);
    return KVANT_OK;
}

kv_status kv_cache_remove(kv_cache *c, int32_t seq, int64_t p0, int64_t p1) {
    KV_TRY(check_range(c, seq, p0, &p1));
    return edit(c, seq, &(kv_edit){.p0 = p0, .p1 = p1, .erase = true});
}

/* What a shift does; empty if it moves no cell. */
static kv_status shift_edit(kv_cache *c, int32_t seq, int64_t p0, int64_t p1, int64_t delta, kv_edit *e) {
    *e = (kv_edit){0};
    KV_TRY(check_range(c, seq, p0, &p1));
    KV_TRY(check_turn(c));
    if (!kv_spans_clip(spans_of(c, seq), &p0, &p1)) return KVANT_OK;
    KV_TRY(check_shift(spans_of(c, seq), p0, p1, delta));
    *e = (kv_edit){.p0 = p0, .p1 = p1, .inside = delta};
    return KVANT_OK;
}

static kv_status drop_edit(kv_cache *c, int32_t seq, int64_t p0, int64_t p1, kv_edit *e) {
    KV_TRY(check_range(c, seq, p0, &p1));
    *e = (kv_edit){.p0 = p0, .p1 = p1, .erase = true};
    if (p1 >= kv_cache_end(c, seq)) return KVANT_OK;
    e->behind = p0 - p1;
    return check_turn(c);
}

kv_status kv_cache_shift(kv_cache *c, int32_t seq, int64_t p0, int64_t p1, int64_t delta) {
    kv_edit e;
    KV_TRY(shift_edit(c, seq, p0, p1, delta, &e));
    return edit(c, seq, &e);
}

kv_status kv_cache_drop(kv_cache *c, int32_t seq, int64_t p0, int64_t p1) {
    kv_edit e;
    KV_TRY(drop_edit(c, seq, p0, p1, &e));
    return edit(c, seq, &e);
}

/* The tokens of [p0, p1) of `seq` alone would be a sequence that windows can go on from. */
static kv_status check_part(const kv_cache *c, int32_t seq, int64_t p0, int64_t p1) {
    kv_edit cut = cut_at(p1);
    for (int32_t i = 1; i < c->n_groups; i++) {
        kv_extent x = kv_spans_extent(&c->groups[i].sequences[seq], &cut);
        if (x.released_end > p0 && kv_group_misses(&c->groups[i], &x))
            return missing(c, &c->groups[i], seq, &x);
    }
    return KVANT_OK;
}

kv_status kv_cache_copy(kv_cache *c, int32_t to, int32_t from, int64_t p0, int64_t p1) {
    KV_TRY(check_sequence(c, to));
    KV_TRY(check_range(c, from, p0, &p1));
    KV_TRY(check_part(c, from, p0, p1));
    for (int32_t i = 0; i < c->n_groups; i++) {
        kv_spans *s = c->groups[i].sequences;
        KV_TRY(kv_vec_reserve(&s[to].list, s[from].list.count + 4) ? KVANT_OK : KVANT_NO_MEMORY);
    }
    for (int32_t i = 0; to != from && i < c->n_groups; i++) kv_group_copy(&c->groups[i], to, from);
    kv_edit tail = cut_at(p1), head = {.p1 = p0, .erase = true};
    edit_groups(c, to, &tail);
    edit_groups(c, to, &head);
    return KVANT_OK;
}

kv_status kv_cache_keep(kv_cache *c, int32_t seq) {
    kv_edit all = cut_at(0);
    KV_TRY(check_sequence(c, seq));
    for (int32_t i = 0; i < c->n_sequences; i++)
        if (i != seq) edit_groups(c, i, &all);
    return KVANT_OK;
}

/* ---- appending ---- */

static kv_status check_parts(kv_cache *c, const kv_cache_part *parts, int32_t n_parts, int64_t *total) {
    *total = 0;
    for (int32_t i = 0; i < n_parts; i++) {
        KV_TRY(check_sequence(c, parts[i].seq));
        for (int32_t j = 0; j < i; j++)
            if (parts[j].seq == parts[i].seq)
                return kv_fail(KVANT_INVALID, "sequence %d occurs twice in one evaluation", parts[i].seq);
        if (parts[i].n_tokens < 1)
            return kv_fail(KVANT_INVALID, "sequence %d: no tokens to append", parts[i].seq);
        *total += parts[i].n_tokens;
    }
    if (*total >= 1 && *total <= c->n_batch) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "%lld tokens at once: must be 1 to %d", (long long)*total, c->n_batch);
}

/* Of what the running evaluation has appended, windows let go of what lies behind them. */
static void release_appended(kv_cache *c, kv_group *g, const kv_cache_part *parts, int32_t n_parts) {
    for (int32_t i = 0; i < n_parts; i++) {
        int64_t from = c->committed[parts[i].seq];
        kv_group_release(g, &g->sequences[parts[i].seq], from > g->n_pin ? from : g->n_pin);
    }
}

static kv_status check_room(const kv_group *g, int64_t n_cells) {
    if (n_cells <= g->cells.n_free) return KVANT_OK;
    char layers[48] = "";
    if (g->window) snprintf(layers, sizeof layers, " in layers with a window of %d", g->window);
    return kv_fail(KVANT_CONTEXT_FULL, "context is full: %lld cells asked for, %d of %d free%s",
                   (long long)n_cells, g->cells.n_free, g->cells.n_cells, layers);
}

kv_status kv_cache_append(kv_cache *c, const kv_cache_part *parts, int32_t n_parts) {
    int64_t total;
    KV_TRY(check_parts(c, parts, n_parts, &total));
    KV_TRY(check_room(&c->groups[0], total));
    for (int32_t i = 0; i < c->n_groups; i++) {
        KV_TRY(kv_group_reserve(&c->groups[i], parts, n_parts));
        release_appended(c, &c->groups[i], parts, n_parts);
        KV_TRY(check_room(&c->groups[i], total));
    }
    for (int32_t i = 0; i < c->n_groups; i++) kv_group_append(&c->groups[i], parts, n_parts);
    return KVANT_OK;
}

void kv_cache_commit(kv_cache *c) {
    for (int32_t seq = 0; seq < c->n_sequences; seq++) {
        if (c->committed[seq] == kv_cache_end(c, seq)) continue;
        for (int32_t i = 1; i < c->n_groups; i++)
            kv_group_release(&c->groups[i], &c->groups[i].sequences[seq], c->groups[i].n_pin);
        c->committed[seq] = kv_cache_end(c, seq);
    }
}

void kv_cache_rollback(kv_cache *c) {
    for (int32_t seq = 0; seq < c->n_sequences; seq++) {
        kv_edit cut = cut_at(c->committed[seq]);
        if (c->committed[seq] < kv_cache_end(c, seq)) edit_groups(c, seq, &cut);
    }
}

const kv_batch_view *kv_cache_batch(const kv_cache *c, int32_t group) { return &c->groups[group].batch; }

const kv_angles *kv_cache_angles(const kv_cache *c, int32_t group) { return &c->groups[group].angles; }

/* ---- rewriting ---- */

static kv_status begin_group(kv_cache *c, kv_group *g, int32_t seq, const kv_rewrite *r) {
    const kv_edit none = {0};
    KV_TRY(kv_group_begin_rewrite(g, seq, r));
    kv_extent x = kv_spans_extent(&g->draft, &none);
    return kv_group_misses(g, &x) ? missing(c, g, seq, &x) : KVANT_OK;
}

static kv_status begin_rewrite(kv_cache *c, int32_t seq, const kv_rewrite *r) {
    kv_status status = KVANT_OK;
    c->rewritten = seq;
    for (int32_t i = 0; !status && i < c->n_groups; i++) status = begin_group(c, &c->groups[i], seq, r);
    if (status) kv_cache_abort_rewrite(c);
    return status;
}

kv_status kv_cache_begin_shift(kv_cache *c, int32_t seq, int64_t p0, int64_t p1, int64_t delta) {
    kv_rewrite r = {0};
    KV_TRY(shift_edit(c, seq, p0, p1, delta, &r.edit));
    return begin_rewrite(c, seq, &r);
}

kv_status kv_cache_begin_drop(kv_cache *c, int32_t seq, int64_t p0, int64_t p1) {
    kv_rewrite r = {0};
    KV_TRY(drop_edit(c, seq, p0, p1, &r.edit));
    return begin_rewrite(c, seq, &r);
}

kv_status kv_cache_begin_compact(kv_cache *c, int32_t seq) {
    kv_rewrite r = {0};
    int64_t most = 0;
    KV_TRY(check_sequence(c, seq));
    KV_TRY(check_turn(c));
    const kv_spans *s = spans_of(c, seq);
    for (size_t i = 0; i < s->list.count; i++) {
        int64_t n = cells_of_frame(s, i);
        if (n > most) most = n, r.frame = s->list.at[i].turn;
    }
    return begin_rewrite(c, seq, &r);
}

kv_status kv_cache_begin_divide(kv_cache *c, int32_t seq, int64_t p0, int64_t p1, int64_t divisor) {
    KV_TRY(check_range(c, seq, p0, &p1));
    KV_TRY(check_turn(c));
    if (divisor < 1)
        return kv_fail(KVANT_INVALID, "positions divided by %lld: must be 1 or more", (long long)divisor);
    KV_TRY(check_divide(spans_of(c, seq), p0, p1, divisor));
    return begin_rewrite(c, seq, &(kv_rewrite){.p0 = p0, .p1 = p1, .divisor = divisor});
}

void kv_cache_commit_rewrite(kv_cache *c) {
    for (int32_t i = 0; i < c->n_groups; i++) kv_group_commit_rewrite(&c->groups[i], c->rewritten);
    c->committed[c->rewritten] = kv_cache_end(c, c->rewritten);
}

void kv_cache_abort_rewrite(kv_cache *c) {
    for (int32_t i = 0; i < c->n_groups; i++) kv_group_abort_rewrite(&c->groups[i]);
}

const kv_cell_moves *kv_cache_moves(const kv_cache *c, int32_t group) { return &c->groups[group].moves; }

const kv_cell_turns *kv_cache_turns(const kv_cache *c, int32_t group) { return &c->groups[group].rotation; }

/* ---- restoring ---- */

kv_status kv_cache_adopt(kv_cache *c, int32_t seq, const kv_span_list *lists) {
    KV_TRY(check_sequence(c, seq));
    for (int32_t i = 0; i < c->n_groups; i++)
        for (size_t k = 0; k < lists[i].count; k++)
            if (lists[i].at[k].turn) KV_TRY(check_turn(c));
    KV_TRY(kv_groups_adopt(c->groups, c->n_groups, seq, lists));
    c->committed[seq] = kv_cache_end(c, seq);
    return KVANT_OK;
}
