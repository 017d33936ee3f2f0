/* cache_model.h: the KV cache's bookkeeping against a dumb model of it: each sequence a sorted list of
 * (position, what its cell holds), and for each group which of them are released. Operations come as bytes,
 * so that random tests and the fuzzer share them.
 *
 * A sequence of the cache is looked at through the front door: it is copied to a spare sequence, one token is
 * appended there, and the views that attention would read tell its cells, their positions and how the query
 * is turned. After every operation, whether it succeeded or not, all of it must be what the model says.
 */
#pragma once

#include "base/memory.h"
#include "cache/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_SEQS = 4, MODEL_SPARE = MODEL_SEQS, MODEL_BATCH = 12, MODEL_MAX_CELLS = 256, MODEL_GROUPS = 2 };

/* An assertion in every build. */
#define model_require(holds)                                                    \
    do {                                                                        \
        if (!(holds)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds); \
            abort();                                                            \
        }                                                                       \
    } while (0)

typedef struct model_token {
    int64_t pos;
    uint32_t id;    /* of what was written */
    bool released;  /* by the window's group */
    int32_t number; /* in the list, before it is sorted */
} model_token;

typedef struct model_seq {
    model_token at[MODEL_MAX_CELLS];
    int32_t n;
} model_seq;

/* What the cells hold, as the views of each append said. */
typedef struct model_cell {
    uint32_t id;
    int64_t stored;
} model_cell;

/* The group of a window; window 0: there is none. */
typedef struct model_window {
    int32_t window, margin, n_pin;
} model_window;

typedef struct cache_model {
    kv_cache *cache;
    kv_device device;
    int32_t n_cells;
    model_window window;
    uint32_t next_id;
    model_seq seqs[MODEL_SEQS];
    model_cell cells[MODEL_GROUPS][MODEL_MAX_CELLS];
    int64_t n_done, n_refused; /* operations */
    int64_t n_missing, n_rewritten, n_copied;
} cache_model;

static inline kv_status model_device_alloc(kv_device *d, kv_buffer *out, size_t bytes) {
    *out = (kv_buffer){.device = d, .bytes = bytes, .host = kv_alloc(1, bytes)};
    return out->host ? KVANT_OK : KVANT_NO_MEMORY;
}

static inline void model_device_release(kv_buffer *b) { kv_free(b->host); }

/* One layer that sees everything, and one that sees the window. */
static inline kv_status model_open_windowed(cache_model *m, int32_t n_cells, model_window window,
                                            bool can_turn) {
    *m = (cache_model){.n_cells = n_cells, .window = window, .next_id = 1};
    m->device = (kv_device){.name = "test", .alloc = model_device_alloc, .release = model_device_release};
    kv_cache_layer layers[2];
    layers[0] = (kv_cache_layer){.device = &m->device,
                                 .k_dtype = &kv_dtype_f32,
                                 .v_dtype = &kv_dtype_f32,
                                 .k_layout = &kv_layout_rows,
                                 .v_layout = &kv_layout_rows,
                                 .n_kv_heads = 1,
                                 .k_dim = 2,
                                 .v_dim = 2,
                                 .roped = true};
    layers[1] = layers[0];
    layers[1].window = window.window;
    kv_cache_spec spec = {.layers = layers,
                          .n_layers = 1 + (window.window > 0),
                          .n_cells = n_cells,
                          .n_sequences = MODEL_SEQS + 1,
                          .n_batch = MODEL_BATCH,
                          .can_turn = can_turn,
                          .margin = window.margin,
                          .n_pin = window.n_pin};
    kv_status status = kv_cache_create(&m->cache, &spec);
    if (!status && kv_cache_n_groups(m->cache) == 1) m->window.window = 0;
    return status;
}

static inline kv_status model_open(cache_model *m, int32_t n_cells) {
    return model_open_windowed(m, n_cells, (model_window){0}, true);
}

static inline void model_close(cache_model *m) { kv_cache_destroy(m->cache); }

/* ---- looking at the cache ---- */

static inline int64_t model_begin(const model_seq *s) { return s->n ? s->at[0].pos : 0; }
static inline int64_t model_end(const model_seq *s) { return s->n ? s->at[s->n - 1].pos + 1 : 0; }

static inline bool model_released(const model_seq *s, int32_t i, int32_t group) {
    return group && i < s->n && s->at[i].released;
}

/* One run of the spare sequence's view against the model, from token *i of it on. */
static inline void model_check_run(const cache_model *m, int32_t group, const model_seq *s, const kv_run *run,
                                   int32_t *i, bool *used) {
    const kv_batch_view *view = kv_cache_batch(m->cache, group);
    const kv_angles *angles = kv_cache_angles(m->cache, group);
    int64_t query = angles->stored[0] + (run->turn < 0 ? 0 : angles->turns[run->turn - view->n_tokens]);
    for (int32_t c = 0; c < run->n_cells; c++) {
        int32_t cell = run->first_cell + c;
        model_require(cell >= 0 && cell < kv_cache_group_cells(m->cache, group));
        if (cell == view->cells[0]) continue; /* the token appended to look */
        while (model_released(s, *i, group)) ++*i;
        model_require(*i < s->n && run->pos + c == s->at[*i].pos && m->cells[group][cell].id == s->at[*i].id);
        /* the law of the lazy shift: the angle between query and key is the distance of their positions */
        model_require(query - m->cells[group][cell].stored == view->pos[0] - s->at[*i].pos);
        model_require(run->stored + c == m->cells[group][cell].stored);
        used[cell] = true;
        ++*i;
    }
}

static inline void model_check_view(const cache_model *m, int32_t group, const model_seq *s, bool *used) {
    const kv_batch_view *view = kv_cache_batch(m->cache, group);
    int32_t n_held = 0, i = 0;
    for (int32_t k = 0; k < s->n; k++) n_held += !model_released(s, k, group);
    model_require(view->n_seqs == 1 && view->n_tokens == 1 && view->seqs[0].n_cells == n_held + 1);
    model_require(view->pos[0] == model_end(s));
    for (int32_t r = 0; r < view->seqs[0].n_runs; r++)
        model_check_run(m, group, s, &view->runs[view->seqs[0].first_run + r], &i, used);
    while (model_released(s, i, group)) i++;
    model_require(i == s->n);
}

/* Spans are in order, and hold as many cells as they say. */
static inline void model_check_spans(const cache_model *m, int32_t group, int32_t seq) {
    kv_span_list l = kv_cache_spans(m->cache, group, seq);
    int64_t n = 0;
    for (size_t i = 0; i < l.count; i++) {
        model_require(l.at[i].n_cells > 0);
        model_require(!i || kv_span_pos(&l.at[i]) >= kv_span_end(&l.at[i - 1]) - 1);
        n += l.at[i].n_cells;
    }
    model_require(n == m->seqs[seq].n);
}

static inline bool model_can_look(const cache_model *m) {
    for (int32_t g = 0; g < kv_cache_n_groups(m->cache); g++)
        if (!kv_cache_group_free(m->cache, g)) return false;
    return true;
}

static inline void model_check_sequence(cache_model *m, int32_t seq, bool used[][MODEL_MAX_CELLS]) {
    const model_seq *s = &m->seqs[seq];
    model_require(kv_cache_tokens(m->cache, seq) == s->n && kv_cache_end(m->cache, seq) == model_end(s));
    model_require(kv_cache_begin(m->cache, seq) == model_begin(s));
    for (int32_t g = 0; g < kv_cache_n_groups(m->cache); g++) model_check_spans(m, g, seq);
    if (!model_can_look(m)) return;
    model_require(!kv_cache_copy(m->cache, MODEL_SPARE, seq, 0, -1));
    model_require(!kv_cache_append(m->cache, &(kv_cache_part){MODEL_SPARE, 1}, 1));
    for (int32_t g = 0; g < kv_cache_n_groups(m->cache); g++) model_check_view(m, g, s, used[g]);
    model_require(!kv_cache_remove(m->cache, MODEL_SPARE, 0, -1));
}

/* Everything: counts, ends, every token's position, content and angle, the number of cells in use. */
static inline void model_check(cache_model *m) {
    static bool used[MODEL_GROUPS][MODEL_MAX_CELLS];
    memset(used, 0, sizeof used);
    int32_t n_free[MODEL_GROUPS], n_groups = kv_cache_n_groups(m->cache);
    bool looked = model_can_look(m);
    for (int32_t g = 0; g < n_groups; g++) n_free[g] = kv_cache_group_free(m->cache, g);
    for (int32_t seq = 0; seq < MODEL_SEQS; seq++) model_check_sequence(m, seq, used);
    for (int32_t g = 0; g < n_groups; g++) {
        int32_t n_used = 0, n_cells = kv_cache_group_cells(m->cache, g);
        model_require(kv_cache_group_free(m->cache, g) == n_free[g]);
        for (int32_t i = 0; i < n_cells; i++) n_used += used[g][i];
        model_require(!looked || n_used == n_cells - n_free[g]);
    }
}

/* ---- operations ---- */

/* The window lets go of positions [from, end - window - margin + 1). */
static inline void model_release(const cache_model *m, model_seq *s, int64_t from) {
    const model_window *w = &m->window;
    if (from < w->n_pin) from = w->n_pin;
    int64_t behind = model_end(s) - w->window - w->margin + 1;
    for (int32_t i = 0; w->window && i < s->n; i++)
        if (s->at[i].pos >= from && s->at[i].pos < behind) s->at[i].released = true;
}

/* A token at the end would see released ones. */
static inline bool model_misses(const cache_model *m, const model_seq *s) {
    for (int32_t i = 0; m->window.window && i < s->n; i++)
        if (s->at[i].released && s->at[i].pos > model_end(s) - m->window.window) return true;
    return false;
}

/* What an append that succeeded wrote. */
static inline void model_append(cache_model *m, const kv_cache_part *parts, int32_t n_parts) {
    int32_t token = 0;
    for (int32_t p = 0; p < n_parts; p++) {
        model_seq *s = &m->seqs[parts[p].seq];
        for (int32_t i = 0; i < parts[p].n_tokens; i++, token++) {
            for (int32_t g = 0; g < kv_cache_n_groups(m->cache); g++) {
                const kv_batch_view *view = kv_cache_batch(m->cache, g);
                model_require(view->pos[token] == model_end(s));
                m->cells[g][view->cells[token]] =
                    (model_cell){m->next_id, kv_cache_angles(m->cache, g)->stored[token]};
            }
            s->at[s->n] = (model_token){.pos = model_end(s), .id = m->next_id++};
            s->n++;
        }
    }
    for (int32_t g = 0; g < kv_cache_n_groups(m->cache); g++)
        model_require(kv_cache_batch(m->cache, g)->n_tokens == token &&
                      kv_cache_angles(m->cache, g)->n_tokens == token);
}

static inline void model_commit(cache_model *m, const kv_cache_part *parts, int32_t n_parts) {
    kv_cache_commit(m->cache);
    for (int32_t p = 0; p < n_parts; p++) model_release(m, &m->seqs[parts[p].seq], 0);
}

/* Removes [p0, p1) and adds `delta` to what lies behind. */
static inline void model_remove(model_seq *s, int64_t p0, int64_t p1, int64_t delta) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++) {
        model_token t = s->at[i];
        if (t.pos >= p0 && t.pos < p1) continue;
        if (t.pos >= p1) t.pos += delta;
        s->at[n++] = t;
    }
    s->n = n;
}

static inline int model_by_position(const void *a, const void *b) {
    const model_token *x = a, *y = b;
    if (x->pos != y->pos) return x->pos > y->pos ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Puts the tokens of [p0, p1) where `move` says. False, and *s as it was, if one of them would share a
 * position with one that stays, or be below 0. */
static inline bool model_move(model_seq *s, int64_t p0, int64_t p1, int64_t delta, int64_t divisor) {
    static model_seq moved;
    moved = *s;
    for (int32_t i = 0; i < s->n; i++) {
        bool inside = s->at[i].pos >= p0 && s->at[i].pos < p1;
        if (inside) moved.at[i].pos = divisor ? s->at[i].pos / divisor : s->at[i].pos + delta;
        if (moved.at[i].pos < 0) return false;
        moved.at[i].number = i;
    }
    for (int32_t i = 0; i < s->n; i++)
        for (int32_t j = 0; j < s->n; j++) {
            bool a = s->at[i].pos >= p0 && s->at[i].pos < p1, b = s->at[j].pos >= p0 && s->at[j].pos < p1;
            if (a && !b && moved.at[i].pos == s->at[j].pos) return false;
        }
    qsort(moved.at, (size_t)moved.n, sizeof *moved.at, model_by_position);
    *s = moved;
    return true;
}

static inline bool model_shift(model_seq *s, int64_t p0, int64_t p1, int64_t delta) {
    return model_move(s, p0, p1, delta, 0);
}

/* Runs what the ops of a rewrite would do to the cells, and ends it. A cell that a sequence shares with
 * another is never rotated. */
static inline void model_rewrite(cache_model *m) {
    for (int32_t g = 0; g < kv_cache_n_groups(m->cache); g++) {
        const kv_cell_moves *moves = kv_cache_moves(m->cache, g);
        const kv_cell_turns *turns = kv_cache_turns(m->cache, g);
        for (int32_t i = 0; i < moves->n; i++) m->cells[g][moves->to[i]] = m->cells[g][moves->from[i]];
        for (int32_t i = 0; i < turns->n; i++) {
            model_require(turns->deltas[i] != 0);
            m->cells[g][turns->cells[i]].stored += turns->deltas[i];
        }
        m->n_copied += moves->n;
        m->n_rewritten += turns->n;
    }
    kv_cache_commit_rewrite(m->cache);
}

typedef struct model_op {
    uint8_t kind, seq, a, b, c, fails; /* fails: the allocation that does, from the top; 0 = none */
} model_op;

/* One evaluation of one or two appends, which is committed or rolled back. */
static inline kv_status model_run_append(cache_model *m, const model_op *op) {
    kv_cache_part parts[] = {{op->seq % MODEL_SEQS, op->a % 9}, {op->b % (MODEL_SEQS + 1), 1 + op->c % 6}};
    int32_t n_parts = 1 + (op->b % 3 == 0), n_free = kv_cache_free_cells(m->cache);
    int32_t total = parts[0].n_tokens + (n_parts > 1 ? parts[1].n_tokens : 0);
    static model_seq before[MODEL_SEQS];
    if (n_parts > 1 && parts[1].seq == MODEL_SEQS) parts[1].seq = -1;
    memcpy(before, m->seqs, sizeof before);
    kv_status status = kv_cache_append(m->cache, parts, n_parts);
    bool wrong = parts[0].n_tokens < 1 || total > MODEL_BATCH ||
                 (n_parts > 1 && (parts[1].seq < 0 || parts[1].seq == parts[0].seq));
    if (wrong)
        model_require(status == KVANT_INVALID);
    else if (total > n_free)
        model_require(status == KVANT_CONTEXT_FULL);
    else /* tokens that share positions may be too many for a window */
        model_require(!status || status == KVANT_NO_MEMORY ||
                      (status == KVANT_CONTEXT_FULL && m->window.window));
    if (status) return status;
    model_append(m, parts, n_parts);
    if (op->c % 5 == 0) { /* a second step of the same evaluation */
        model_seq *s = &m->seqs[parts[0].seq];
        status = kv_cache_append(m->cache, parts, 1);
        model_release(m, s, model_end(&before[parts[0].seq]));
        if (!status) model_append(m, parts, 1);
    }
    if (!status && op->c % 7) {
        model_commit(m, parts, n_parts);
    } else {
        kv_cache_rollback(m->cache);
        memcpy(m->seqs, before, sizeof before);
    }
    return status;
}

/* The status that a legal operation on *s, after which it would be `after`, must have. */
static inline void model_take(cache_model *m, model_seq *s, const model_seq *after, kv_status wrong,
                              kv_status status, bool rewrites) {
    if (!wrong && model_misses(m, after)) wrong = KVANT_UNSUPPORTED;
    bool full = rewrites && status == KVANT_CONTEXT_FULL;
    if (wrong && !full)
        model_require(status == wrong || status == KVANT_NO_MEMORY);
    else
        model_require(!status || status == KVANT_NO_MEMORY || full);
    m->n_missing += status == KVANT_UNSUPPORTED;
    if (!status) *s = *after;
}

static inline kv_status model_run_range(cache_model *m, const model_op *op) {
    int32_t seq = op->seq % MODEL_SEQS, divisor = op->c % 5, kind = op->kind % 12;
    model_seq *s = &m->seqs[seq];
    static model_seq after;
    int64_t end = model_end(s), p0 = op->a % (end + 3), p1 = p0 + op->b % 8 - 1; /* mostly short */
    if (op->b % 8 == 7) p1 = p0 + op->b % (end + 3);
    if (op->b > 240) p1 = -1;
    int64_t to = p1 < 0 ? (end > p0 ? end : p0) : p1, delta = op->c % 32 - 16;
    if (op->c > 250) delta = ((int64_t)1 << 40) * (op->c - 253);
    kv_status status, wrong = p0 > to ? KVANT_INVALID : KVANT_OK;
    after = *s;
    if (kind == 3) {
        model_remove(&after, p0, to, 0);
        status = kv_cache_remove(m->cache, seq, p0, p1);
    } else if (kind == 4 || kind == 8) {
        model_remove(&after, p0, to, p0 - to);
        status =
            kind == 4 ? kv_cache_drop(m->cache, seq, p0, p1) : kv_cache_begin_drop(m->cache, seq, p0, p1);
    } else if (kind == 10) {
        if (!wrong && (divisor < 1 || !model_move(&after, p0, to, 0, divisor))) wrong = KVANT_INVALID;
        status = kv_cache_begin_divide(m->cache, seq, p0, p1, divisor);
    } else {
        if (!wrong && !model_shift(&after, p0, to, delta)) wrong = KVANT_INVALID;
        status = kind == 5 ? kv_cache_shift(m->cache, seq, p0, p1, delta)
                           : kv_cache_begin_shift(m->cache, seq, p0, p1, delta);
    }
    if (!status && kind >= 8 && op->fails % 3 == 2) { /* the ops were not run after all */
        kv_cache_abort_rewrite(m->cache);
        return KVANT_CANCELLED;
    }
    if (!status && kind >= 8) model_rewrite(m);
    model_take(m, s, &after, wrong, status, kind >= 8);
    return status;
}

static inline kv_status model_run_compact(cache_model *m, const model_op *op) {
    int32_t seq = op->seq % MODEL_SEQS;
    kv_status status = kv_cache_begin_compact(m->cache, seq);
    model_require(!status || status == KVANT_NO_MEMORY || status == KVANT_CONTEXT_FULL);
    if (status) return status;
    model_rewrite(m);
    model_require(kv_cache_frames(m->cache, seq) <= 1);
    return status;
}

static inline kv_status model_run_copy(cache_model *m, const model_op *op) {
    int32_t seq = op->seq % MODEL_SEQS, to = op->a % MODEL_SEQS;
    static model_seq after;
    after = m->seqs[seq];
    int64_t end = model_end(&after), p0 = op->b % 4 ? 0 : op->b % (end + 2),
            p1 = op->c % 4 ? -1 : op->c % (end + 2);
    kv_status status = kv_cache_copy(m->cache, to, seq, p0, p1), wrong = KVANT_OK;
    if (p1 < 0) p1 = end > p0 ? end : p0;
    if (p0 > p1) wrong = KVANT_INVALID;
    model_remove(&after, p1, INT64_MAX, 0);
    model_remove(&after, 0, p0, 0);
    model_take(m, &m->seqs[to], &after, wrong, status, false);
    return status;
}

/* Cuts back as far as the cache says it can, and no farther. */
static inline kv_status model_run_rewind(cache_model *m, const model_op *op) {
    int32_t seq = op->seq % MODEL_SEQS;
    model_seq *s = &m->seqs[seq];
    static model_seq after;
    int64_t pos = op->a % (model_end(s) + 2), at = kv_cache_rewind(m->cache, seq, pos);
    model_require(at >= 0 && at <= pos);
    for (int64_t p = at; p <= pos && p <= model_end(s); p++) {
        after = *s;
        model_remove(&after, p, INT64_MAX, 0);
        model_require(model_misses(m, &after) == (p != at));
    }
    model_require(!kv_cache_remove(m->cache, seq, at, -1));
    model_remove(s, at, INT64_MAX, 0);
    return KVANT_OK;
}

static inline kv_status model_run_op(cache_model *m, const model_op *op) {
    int32_t seq = op->seq % MODEL_SEQS, kind = op->kind % 12;
    if (kind < 3) return model_run_append(m, op);
    if (kind < 6 || (kind >= 8 && kind < 11)) return model_run_range(m, op);
    if (kind == 6) return model_run_copy(m, op);
    if (kind == 11) return op->b % 2 ? model_run_compact(m, op) : model_run_rewind(m, op);
    if (op->b % 8) return kv_cache_copy(m->cache, seq, MODEL_SEQS + 1 + op->b, 0, -1); /* refused */
    if (op->b % 16 == 0) {
        model_require(!kv_cache_keep(m->cache, seq));
        for (int32_t i = 0; i < MODEL_SEQS; i++)
            if (i != seq) m->seqs[i].n = 0;
        return KVANT_OK;
    }
    kv_status status = kv_cache_remove(m->cache, seq, 0, -1);
    model_require(!status);
    m->seqs[seq].n = 0;
    return status;
}

/* Runs one operation, perhaps with memory that runs out, and compares all there is. */
static inline void model_step(cache_model *m, const model_op *op) {
    if (op->fails) kv_alloc_fail_after(op->fails - 1);
    kv_status status = model_run_op(m, op);
    kv_alloc_fail_after(-1);
    model_require(status != KVANT_NO_MEMORY || op->fails);
    if (status)
        m->n_refused++;
    else
        m->n_done++;
    model_check(m);
}
