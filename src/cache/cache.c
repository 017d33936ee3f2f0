/* cache.c: stores, sequences, and the views that ops read. */
#include "cache/cache.h"

#include "cache/cells.h"
#include "cache/spans.h"

#include <string.h>

struct kv_cache {
    kv_cache_layer *layers;
    kv_store *stores;
    int32_t n_layers, n_sequences, n_batch;
    bool can_turn;
    kv_cells cells;
    kv_spans *sequences;
    /* of the last append */
    kv_batch_view batch;
    kv_angles angles;
    int64_t *pos, *stored; /* n_batch */
    int32_t *cell_of;      /* n_batch */
    kv_seq_view *seqs;     /* n_sequences */
    KV_VEC(kv_run) runs;
    KV_VEC(int64_t) turns;
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

static kv_status create_tensor(kv_tensor *t, const kv_cache *c, kv_device *device, const kv_dtype *d,
                               const kv_layout *l, int64_t cols) {
    *t = (kv_tensor){.dtype = d, .layout = l, .rows = c->cells.n_cells, .cols = cols};
    kv_buffer *buffer = kv_alloc(1, sizeof *buffer);
    if (!buffer) return KVANT_NO_MEMORY;
    t->buffer = buffer;
    return device->alloc(device, buffer, kv_tensor_bytes(t));
}

static kv_status create_store(kv_cache *c, int32_t i) {
    const kv_cache_layer *l = &c->layers[i];
    kv_store *s = &c->stores[i];
    *s = (kv_store){
        .n_kv_heads = l->n_kv_heads, .k_head = k_code(l), .v_head = v_code(l), .centre = l->centre};
    int64_t k_cols = (int64_t)l->n_kv_heads * s->k_head.width,
            v_cols = (int64_t)l->n_kv_heads * s->v_head.width;
    KV_TRY(create_tensor(&s->k, c, l->device, l->k_dtype, l->k_layout, k_cols));
    return create_tensor(&s->v, c, l->device, l->v_dtype, l->v_layout, v_cols);
}

static kv_status create_tables(kv_cache *c, const kv_cache_spec *spec) {
    size_t n_batch = (size_t)spec->n_batch, n_layers = (size_t)spec->n_layers,
           n_seqs = (size_t)spec->n_sequences;
    KV_TRY(kv_cells_init(&c->cells, spec->n_cells, KV_PAGE_CELLS));
    c->layers = kv_alloc(n_layers, sizeof *c->layers);
    c->stores = kv_alloc(n_layers, sizeof *c->stores);
    c->sequences = kv_alloc(n_seqs, sizeof *c->sequences);
    c->seqs = kv_alloc(n_seqs, sizeof *c->seqs);
    c->pos = kv_alloc(n_batch, sizeof *c->pos);
    c->stored = kv_alloc(n_batch, sizeof *c->stored);
    c->cell_of = kv_alloc(n_batch, sizeof *c->cell_of);
    if (!c->layers || !c->stores || !c->sequences || !c->seqs || !c->pos || !c->stored || !c->cell_of)
        return KVANT_NO_MEMORY;
    memcpy(c->layers, spec->layers, n_layers * sizeof *c->layers);
    c->batch = (kv_batch_view){.pos = c->pos, .cells = c->cell_of, .seqs = c->seqs};
    c->angles = (kv_angles){.stored = c->stored};
    return KVANT_OK;
}

static kv_status create(kv_cache *c, const kv_cache_spec *spec) {
    c->n_layers = spec->n_layers;
    c->n_sequences = spec->n_sequences;
    c->n_batch = spec->n_batch;
    c->can_turn = spec->can_turn;
    KV_TRY(create_tables(c, spec));
    for (int32_t i = 0; i < c->n_layers; i++) KV_TRY(create_store(c, i));
    /* enough for a context in page-sized pieces: appending allocates only for one more torn than that */
    size_t spans = (size_t)(spec->n_cells / KV_PAGE_CELLS + 16);
    for (int32_t i = 0; i < c->n_sequences; i++) KV_TRY(kv_spans_reserve(&c->sequences[i], spans));
    bool room = kv_vec_reserve(&c->runs, spans) && kv_vec_reserve(&c->turns, 16);
    return room ? KVANT_OK : KVANT_NO_MEMORY;
}

kv_status kv_cache_create(kv_cache **out, const kv_cache_spec *spec) {
    kv_cache *c = kv_alloc(1, sizeof *c);
    if (!c) return KVANT_NO_MEMORY;
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
    for (int32_t i = 0; c->sequences && i < c->n_sequences; i++) kv_vec_clear(&c->sequences[i].list);
    kv_cells_clear(&c->cells);
    kv_vec_clear(&c->runs);
    kv_vec_clear(&c->turns);
    void *tables[] = {c->layers, c->stores, c->sequences, c->seqs, c->pos, c->stored, c->cell_of};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) kv_free(tables[i]);
    kv_free(c);
}

kv_store *kv_cache_store(kv_cache *c, int32_t layer) { return &c->stores[layer]; }

int32_t kv_cache_free_cells(const kv_cache *c) { return c->cells.n_free; }

int64_t kv_cache_bytes_per_cell(const kv_cache *c) {
    size_t bytes = 0;
    for (int32_t i = 0; i < c->n_layers; i++) bytes += kv_cache_layer_bytes(&c->layers[i]);
    return (int64_t)bytes;
}

/* ---- sequences ---- */

static kv_status find_sequence(kv_cache *c, int32_t seq, kv_spans **out) {
    if (seq < 0 || seq >= c->n_sequences)
        return kv_fail(KVANT_INVALID, "sequence %d: must be 0 to %d", seq, c->n_sequences - 1);
    *out = &c->sequences[seq];
    return KVANT_OK;
}

int64_t kv_cache_end(const kv_cache *c, int32_t seq) { return kv_spans_end(&c->sequences[seq]); }

int64_t kv_cache_tokens(const kv_cache *c, int32_t seq) { return c->sequences[seq].n_cells; }

int32_t kv_cache_frames(const kv_cache *c, int32_t seq) {
    const kv_spans *s = &c->sequences[seq];
    int32_t frames = 0;
    for (size_t i = 0; i < s->list.count; i++) {
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++) seen = s->list.at[j].turn == s->list.at[i].turn;
        frames += !seen;
    }
    return frames;
}

/* p1 < 0 becomes the end; the range must be in order. */
static kv_status check_range(const kv_spans *s, int64_t p0, int64_t *p1) {
    if (*p1 < 0) *p1 = kv_spans_end(s) > p0 ? kv_spans_end(s) : p0;
    if (p0 >= 0 && p0 <= *p1) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "positions %lld to %lld: not a range", (long long)p0, (long long)*p1);
}

static void erase_range(kv_cache *c, kv_spans *s, int64_t p0, int64_t p1) {
    size_t first = kv_spans_split(s, p0), last = kv_spans_split(s, p1);
    for (size_t i = first; i < last; i++)
        kv_cells_drop(&c->cells, s->list.at[i].first_cell, s->list.at[i].n_cells);
    kv_spans_erase(s, first, last);
}

/* All from p0 on, span by span from the end: nothing is split, so no memory is needed. */
static void cut_end(kv_cache *c, kv_spans *s, int64_t p0) {
    while (s->list.count && kv_spans_end(s) > p0) {
        kv_span *last = &s->list.at[s->list.count - 1];
        int32_t stay = kv_span_pos(last) < p0 ? (int32_t)(p0 - kv_span_pos(last)) : 0;
        kv_cells_drop(&c->cells, last->first_cell + stay, last->n_cells - stay);
        s->n_cells -= last->n_cells - stay;
        last->n_cells = stay;
        if (!stay) s->list.count--;
    }
}

static void turn_range(kv_spans *s, int64_t p0, int64_t p1, int64_t delta) {
    size_t first = kv_spans_split(s, p0), last = kv_spans_split(s, p1);
    for (size_t i = first; i < last; i++) s->list.at[i].turn += delta;
    kv_spans_sort(s);
    kv_spans_join(s);
}

kv_status kv_cache_remove(kv_cache *c, int32_t seq, int64_t p0, int64_t p1) {
    kv_spans *s = NULL;
    KV_TRY(find_sequence(c, seq, &s));
    KV_TRY(check_range(s, p0, &p1));
    if (p1 >= kv_spans_end(s)) {
        cut_end(c, s, p0);
    } else if (p0 < p1) {
        KV_TRY(kv_spans_reserve(s, 2));
        erase_range(c, s, p0, p1);
    }
    return KVANT_OK;
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
        int64_t begin = kv_span_pos(&s->list.at[i]), end = begin + s->list.at[i].n_cells;
        int64_t before = end < p0 ? end : p0, after = begin > p1 ? begin : p1; /* parts that stay */
        if (collides(s, p0, p1, delta, begin, before) || collides(s, p0, p1, delta, after, end))
            return kv_fail(KVANT_INVALID, "shift by %lld of positions %lld to %lld: tokens stay in the way",
                           (long long)delta, (long long)p0, (long long)p1);
    }
    return KVANT_OK;
}

kv_status kv_cache_shift(kv_cache *c, int32_t seq, int64_t p0, int64_t p1, int64_t delta) {
    kv_spans *s = NULL;
    KV_TRY(find_sequence(c, seq, &s));
    KV_TRY(check_range(s, p0, &p1));
    if (!c->can_turn) return kv_fail(KVANT_UNSUPPORTED, "this model's positions cannot be moved");
    if (!kv_spans_clip(s, &p0, &p1)) return KVANT_OK;
    KV_TRY(check_shift(s, p0, p1, delta));
    KV_TRY(kv_spans_reserve(s, 2));
    turn_range(s, p0, p1, delta);
    return KVANT_OK;
}

kv_status kv_cache_drop(kv_cache *c, int32_t seq, int64_t p0, int64_t p1) {
    kv_spans *s = NULL;
    KV_TRY(find_sequence(c, seq, &s));
    KV_TRY(check_range(s, p0, &p1));
    if (p1 >= kv_spans_end(s)) return kv_cache_remove(c, seq, p0, -1);
    if (!c->can_turn) return kv_fail(KVANT_UNSUPPORTED, "this model's positions cannot be moved");
    KV_TRY(kv_spans_reserve(s, 4));
    erase_range(c, s, p0, p1);
    turn_range(s, p1, kv_spans_end(s), p0 - p1);
    return KVANT_OK;
}

kv_status kv_cache_copy(kv_cache *c, int32_t to, int32_t from) {
    kv_spans *a = NULL, *b = NULL;
    KV_TRY(find_sequence(c, to, &a));
    KV_TRY(find_sequence(c, from, &b));
    if (a == b) return KVANT_OK;
    KV_TRY(kv_vec_reserve(&a->list, b->list.count + 4) ? KVANT_OK : KVANT_NO_MEMORY);
    for (size_t i = 0; i < b->list.count; i++)
        kv_cells_share(&c->cells, b->list.at[i].first_cell, b->list.at[i].n_cells);
    for (size_t i = 0; i < a->list.count; i++)
        kv_cells_drop(&c->cells, a->list.at[i].first_cell, a->list.at[i].n_cells);
    memcpy(a->list.at, b->list.at, b->list.count * sizeof *a->list.at);
    a->list.count = b->list.count;
    a->n_cells = b->n_cells;
    return KVANT_OK;
}

/* ---- appending ---- */

static kv_status check_parts(kv_cache *c, const kv_cache_part *parts, int32_t n_parts) {
    int64_t total = 0;
    for (int32_t i = 0; i < n_parts; i++) {
        kv_spans *s = NULL;
        KV_TRY(find_sequence(c, parts[i].seq, &s));
        for (int32_t j = 0; j < i; j++)
            if (parts[j].seq == parts[i].seq)
                return kv_fail(KVANT_INVALID, "sequence %d occurs twice in one evaluation", parts[i].seq);
        if (parts[i].n_tokens < 1)
            return kv_fail(KVANT_INVALID, "sequence %d: no tokens to append", parts[i].seq);
        total += parts[i].n_tokens;
    }
    if (total < 1 || total > c->n_batch)
        return kv_fail(KVANT_INVALID, "%lld tokens at once: must be 1 to %d", (long long)total, c->n_batch);
    if (total > c->cells.n_free)
        return kv_fail(KVANT_CONTEXT_FULL, "context is full: %lld cells asked for, %d of %d free",
                       (long long)total, c->cells.n_free, c->cells.n_cells);
    return KVANT_OK;
}

static void append_tokens(kv_cache *c, kv_spans *s, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++) {
        const kv_span *last = s->list.count ? &s->list.at[s->list.count - 1] : NULL;
        c->cell_of[i] = kv_cells_take(&c->cells, last ? last->first_cell + last->n_cells : -1);
        c->pos[i] = kv_spans_end(s);
        kv_spans_append(s, c->cell_of[i]);
        c->stored[i] = c->pos[i] - s->list.at[s->list.count - 1].turn;
    }
}

/* The row behind the tokens' that turns by `delta`, added if it is new; -1 for no turn. Room was made. */
static int32_t turn_row(kv_cache *c, int64_t delta) {
    if (delta == 0) return -1;
    size_t i = 0;
    while (i < c->turns.count && c->turns.at[i] != delta) i++;
    if (i == c->turns.count) c->turns.at[c->turns.count++] = delta;
    return c->batch.n_tokens + (int32_t)i;
}

static void view_sequence(kv_cache *c, const kv_spans *s, kv_seq_view *view) {
    int64_t frame = s->list.at[s->list.count - 1].turn;
    view->first_run = (int32_t)c->runs.count;
    view->n_runs = (int32_t)s->list.count;
    view->n_cells = s->n_cells;
    for (size_t i = 0; i < s->list.count; i++) {
        const kv_span *span = &s->list.at[i];
        c->runs.at[c->runs.count++] = (kv_run){.first_cell = span->first_cell,
                                               .n_cells = span->n_cells,
                                               .pos = kv_span_pos(span),
                                               .stored = span->stored,
                                               .turn = turn_row(c, frame - span->turn)};
    }
}

/* Room for every span that the append may make and view, before anything changes. */
static kv_status reserve(kv_cache *c, const kv_cache_part *parts, int32_t n_parts) {
    size_t spans = 0;
    for (int32_t i = 0; i < n_parts; i++) {
        kv_spans *s = &c->sequences[parts[i].seq];
        /* each token in a cell of its own, at worst; and two, so that the append can be undone without memory
         */
        KV_TRY(kv_spans_reserve(s, (size_t)parts[i].n_tokens + 2));
        spans += s->list.count + (size_t)parts[i].n_tokens;
    }
    bool room = kv_vec_reserve(&c->runs, spans) && kv_vec_reserve(&c->turns, spans);
    return room ? KVANT_OK : KVANT_NO_MEMORY;
}

kv_status kv_cache_append(kv_cache *c, const kv_cache_part *parts, int32_t n_parts) {
    KV_TRY(check_parts(c, parts, n_parts));
    KV_TRY(reserve(c, parts, n_parts));
    c->batch.n_tokens = 0;
    c->batch.n_seqs = n_parts;
    for (int32_t i = 0; i < n_parts; i++) {
        c->seqs[i] = (kv_seq_view){.first_token = c->batch.n_tokens, .n_tokens = parts[i].n_tokens};
        append_tokens(c, &c->sequences[parts[i].seq], c->batch.n_tokens, parts[i].n_tokens);
        c->batch.n_tokens += parts[i].n_tokens;
    }
    c->runs.count = c->turns.count = 0;
    for (int32_t i = 0; i < n_parts; i++) view_sequence(c, &c->sequences[parts[i].seq], &c->seqs[i]);
    c->batch.runs = c->runs.at;
    c->angles.n_tokens = c->batch.n_tokens;
    c->angles.n_turns = (int32_t)c->turns.count;
    c->angles.turns = c->turns.at;
    return KVANT_OK;
}

const kv_batch_view *kv_cache_batch(const kv_cache *c) { return &c->batch; }

const kv_angles *kv_cache_angles(const kv_cache *c) { return &c->angles; }
