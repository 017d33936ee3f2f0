/* cache_model.h: the KV cache's bookkeeping against a dumb model of it: each sequence a sorted list of
 * (position, what its cell holds). Operations come as bytes, so that random tests and the fuzzer share them.
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

enum { MODEL_SEQS = 4, MODEL_SPARE = MODEL_SEQS, MODEL_BATCH = 12, MODEL_MAX_CELLS = 256 };

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
    uint32_t id; /* of what was written */
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

typedef struct cache_model {
    kv_cache *cache;
    kv_device device;
    int32_t n_cells;
    uint32_t next_id;
    model_seq seqs[MODEL_SEQS];
    model_cell cells[MODEL_MAX_CELLS];
    int64_t n_done, n_refused; /* operations */
} cache_model;

static inline kv_status model_device_alloc(kv_device *d, kv_buffer *out, size_t bytes) {
    *out = (kv_buffer){.device = d, .bytes = bytes, .host = kv_alloc(1, bytes)};
    return out->host ? KVANT_OK : KVANT_NO_MEMORY;
}

static inline void model_device_release(kv_buffer *b) { kv_free(b->host); }

static inline kv_status model_open(cache_model *m, int32_t n_cells) {
    *m = (cache_model){.n_cells = n_cells, .next_id = 1};
    m->device = (kv_device){.name = "test", .alloc = model_device_alloc, .release = model_device_release};
    kv_cache_layer layer = {.device = &m->device,
                            .k_dtype = &kv_dtype_f32,
                            .v_dtype = &kv_dtype_f32,
                            .k_layout = &kv_layout_rows,
                            .v_layout = &kv_layout_rows,
                            .n_kv_heads = 1,
                            .k_dim = 2,
                            .v_dim = 2};
    kv_cache_spec spec = {.layers = &layer,
                          .n_layers = 1,
                          .n_cells = n_cells,
                          .n_sequences = MODEL_SEQS + 1,
                          .n_batch = MODEL_BATCH,
                          .can_turn = true};
    return kv_cache_create(&m->cache, &spec);
}

static inline void model_close(cache_model *m) { kv_cache_destroy(m->cache); }

/* ---- looking at the cache ---- */

static inline int64_t model_end(const model_seq *s) { return s->n ? s->at[s->n - 1].pos + 1 : 0; }

/* One run of the spare sequence's view against the model, from token *i of it on. */
static inline void model_check_run(const cache_model *m, const model_seq *s, const kv_run *run, int32_t *i,
                                   bool *used) {
    const kv_batch_view *view = kv_cache_batch(m->cache);
    const kv_angles *angles = kv_cache_angles(m->cache);
    int64_t query = angles->stored[0] + (run->turn < 0 ? 0 : angles->turns[run->turn - view->n_tokens]);
    for (int32_t c = 0; c < run->n_cells; c++) {
        int32_t cell = run->first_cell + c;
        model_require(cell >= 0 && cell < m->n_cells);
        if (cell == view->cells[0]) continue; /* the token appended to look */
        model_require(*i < s->n && run->pos + c == s->at[*i].pos && m->cells[cell].id == s->at[*i].id);
        /* the law of the lazy shift: the angle between query and key is the distance of their positions */
        model_require(query - m->cells[cell].stored == view->pos[0] - s->at[*i].pos);
        used[cell] = true;
        ++*i;
    }
}

static inline void model_check_sequence(cache_model *m, int32_t seq, bool *used) {
    const model_seq *s = &m->seqs[seq];
    model_require(kv_cache_tokens(m->cache, seq) == s->n && kv_cache_end(m->cache, seq) == model_end(s));
    if (!kv_cache_free_cells(m->cache)) return; /* no cell to look with */
    model_require(!kv_cache_copy(m->cache, MODEL_SPARE, seq));
    model_require(!kv_cache_append(m->cache, &(kv_cache_part){MODEL_SPARE, 1}, 1));
    const kv_batch_view *view = kv_cache_batch(m->cache);
    model_require(view->n_seqs == 1 && view->n_tokens == 1 && view->seqs[0].n_cells == s->n + 1);
    model_require(view->pos[0] == model_end(s));
    int32_t i = 0;
    for (int32_t r = 0; r < view->seqs[0].n_runs; r++)
        model_check_run(m, s, &view->runs[view->seqs[0].first_run + r], &i, used);
    model_require(i == s->n);
    model_require(!kv_cache_remove(m->cache, MODEL_SPARE, 0, -1));
}

/* Everything: counts, ends, every token's position, content and angle, the number of cells in use. */
static inline void model_check(cache_model *m) {
    bool used[MODEL_MAX_CELLS] = {false};
    int32_t n_free = kv_cache_free_cells(m->cache), n_used = 0;
    for (int32_t seq = 0; seq < MODEL_SEQS; seq++) model_check_sequence(m, seq, used);
    model_require(kv_cache_free_cells(m->cache) == n_free);
    for (int32_t i = 0; i < m->n_cells; i++) n_used += used[i];
    model_require(!n_free || n_used == m->n_cells - n_free);
}

/* ---- operations ---- */

static inline void model_append(cache_model *m, const kv_cache_part *parts, int32_t n_parts) {
    const kv_batch_view *view = kv_cache_batch(m->cache);
    const kv_angles *angles = kv_cache_angles(m->cache);
    int32_t token = 0;
    for (int32_t p = 0; p < n_parts; p++) {
        model_seq *s = &m->seqs[parts[p].seq];
        for (int32_t i = 0; i < parts[p].n_tokens; i++, token++) {
            model_require(view->pos[token] == model_end(s));
            m->cells[view->cells[token]] = (model_cell){m->next_id, angles->stored[token]};
            s->at[s->n] = (model_token){model_end(s), m->next_id++};
            s->n++;
        }
    }
    model_require(view->n_tokens == token && angles->n_tokens == token);
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
    int64_t x = ((const model_token *)a)->pos, y = ((const model_token *)b)->pos;
    return (x > y) - (x < y);
}

/* False, and *s as it was, if two tokens would share a position or one be below 0. */
static inline bool model_shift(model_seq *s, int64_t p0, int64_t p1, int64_t delta) {
    model_seq moved = *s;
    for (int32_t i = 0; i < s->n; i++)
        if (s->at[i].pos >= p0 && s->at[i].pos < p1) moved.at[i].pos += delta;
    qsort(moved.at, (size_t)moved.n, sizeof *moved.at, model_by_position);
    for (int32_t i = 0; i < moved.n; i++)
        if (moved.at[i].pos < 0 || (i && moved.at[i].pos == moved.at[i - 1].pos)) return false;
    *s = moved;
    return true;
}

typedef struct model_op {
    uint8_t kind, seq, a, b, c, fails; /* fails: the allocation that does, from the top; 0 = none */
} model_op;

static inline kv_status model_run_append(cache_model *m, const model_op *op) {
    kv_cache_part parts[] = {{op->seq % MODEL_SEQS, op->a % 9}, {op->b % (MODEL_SEQS + 1), 1 + op->c % 6}};
    int32_t n_parts = 1 + (op->b % 3 == 0), n_free = kv_cache_free_cells(m->cache);
    int32_t total = parts[0].n_tokens + (n_parts > 1 ? parts[1].n_tokens : 0);
    if (n_parts > 1 && parts[1].seq == MODEL_SEQS) parts[1].seq = -1;
    kv_status status = kv_cache_append(m->cache, parts, n_parts);
    bool wrong = parts[0].n_tokens < 1 || total > MODEL_BATCH ||
                 (n_parts > 1 && (parts[1].seq < 0 || parts[1].seq == parts[0].seq));
    if (wrong)
        model_require(status == KVANT_INVALID);
    else if (total > n_free)
        model_require(status == KVANT_CONTEXT_FULL);
    else
        model_require(!status || status == KVANT_NO_MEMORY);
    if (!status) model_append(m, parts, n_parts);
    return status;
}

static inline kv_status model_run_range(cache_model *m, const model_op *op) {
    int32_t seq = op->seq % MODEL_SEQS;
    model_seq *s = &m->seqs[seq];
    int64_t end = model_end(s), p0 = op->a % (end + 3), p1 = p0 + op->b % 8 - 1; /* mostly short */
    if (op->b % 8 == 7) p1 = p0 + op->b % (end + 3);
    if (op->b > 240) p1 = -1;
    int64_t to = p1 < 0 ? (end > p0 ? end : p0) : p1, delta = op->c % 32 - 16;
    if (op->c > 250) delta = ((int64_t)1 << 40) * (op->c - 253);
    kv_status status, wrong = p0 > to ? KVANT_INVALID : KVANT_OK;
    if (op->kind % 8 == 3) {
        status = kv_cache_remove(m->cache, seq, p0, p1);
        if (!status) model_remove(s, p0, to, 0);
    } else if (op->kind % 8 == 4) {
        status = kv_cache_drop(m->cache, seq, p0, p1);
        if (!status) model_remove(s, p0, to, p0 - to);
    } else {
        status = kv_cache_shift(m->cache, seq, p0, p1, delta);
        model_seq moved = *s;
        if (!wrong && !model_shift(&moved, p0, to, delta)) wrong = KVANT_INVALID;
        if (!status) *s = moved;
    }
    model_require(wrong ? status == wrong : !status || status == KVANT_NO_MEMORY);
    return status;
}

static inline kv_status model_run_op(cache_model *m, const model_op *op) {
    int32_t seq = op->seq % MODEL_SEQS, to = op->a % MODEL_SEQS;
    if (op->kind % 8 < 3) return model_run_append(m, op);
    if (op->kind % 8 < 6) return model_run_range(m, op);
    if (op->kind % 8 == 6) {
        kv_status status = kv_cache_copy(m->cache, to, seq);
        model_require(!status || status == KVANT_NO_MEMORY);
        if (!status && to != seq) m->seqs[to] = m->seqs[seq];
        return status;
    }
    if (op->b % 8) return kv_cache_copy(m->cache, seq, MODEL_SEQS + 1 + op->b); /* refused */
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
