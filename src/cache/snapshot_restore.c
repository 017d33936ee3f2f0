/* snapshot_restore.c: from an open snapshot into a cache: first everything that can differ is compared, then
 * all memory that is needed is there, then the sequence is replaced and its rows are written. */
#include "cache/cell_tokens.h"
#include "cache/snapshot.h"
#include "cache/snapshot_rows.h"

#include <math.h>
#include <string.h>

/* ---- what must be the same ---- */

static kv_status check_text(const char *what, kv_byte_text theirs, const char *ours) {
    if (kv_byte_text_is(theirs, ours)) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "of another model: %s %.*s, here %s", what,
                   (int)(theirs.size < 64 ? theirs.size : 64), theirs.at, ours);
}

static kv_status check_number(const char *what, int32_t theirs, int32_t ours) {
    if (theirs == ours) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "of another model: %s %d, here %d", what, theirs, ours);
}

static kv_status check_layer_number(int32_t layer, const char *what, int32_t theirs, int32_t ours) {
    if (theirs == ours) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "layer %d: %s %d, here %d", layer, what, theirs, ours);
}

static kv_status check_model(const kv_snapshot *s, const kv_snapshot_model *m) {
    KV_TRY(check_text("architecture", s->architecture, m->architecture));
    KV_TRY(check_number("layers", s->n_layers, m->n_layers));
    KV_TRY(check_number("embedding size", s->n_embd, m->n_embd));
    KV_TRY(check_number("tokens in the vocabulary", s->n_vocab, m->n_vocab));
    return check_text("fingerprint", s->fingerprint, m->fingerprint);
}

/* Frequencies come out of powers and quotients that differ in the last bit from one C library to another. */
static bool alike(double a, double b) { return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)); }

static kv_status check_rope(int32_t layer, const kv_rope *theirs, const kv_rope *ours) {
    KV_TRY(check_layer_number(layer, "rotated dimensions", theirs->n_rot, ours->n_rot));
    if (theirs->pairing != ours->pairing)
        return kv_fail(KVANT_INVALID, "layer %d: rotary pairs lie otherwise than here", layer);
    if (!alike((double)theirs->magnitude, (double)ours->magnitude))
        return kv_fail(KVANT_INVALID, "layer %d: rotary magnitude %g, here %g", layer,
                       (double)theirs->magnitude, (double)ours->magnitude);
    for (int32_t i = 0; i < ours->n_rot / 2; i++)
        if (!alike(theirs->freq[i], ours->freq[i]))
            return kv_fail(KVANT_INVALID, "layer %d: rotary frequency %d is %g, here %g", layer, i,
                           theirs->freq[i], ours->freq[i]);
    return KVANT_OK;
}

static kv_status check_layer(const kv_snapshot *s, const kv_snapshot_model *m, const kv_store *store,
                             int32_t i) {
    const kv_snapshot_layer *l = &s->layers[i];
    KV_TRY(check_layer_number(i, "KV heads", l->n_kv_heads, store->n_kv_heads));
    KV_TRY(check_layer_number(i, "key head size", l->k_head.dim, store->k_head.dim));
    KV_TRY(check_layer_number(i, "value head size", l->v_head.dim, store->v_head.dim));
    return check_rope(i, &s->ropes[l->rope], &m->ropes[m->rope_of[i]]);
}

kv_status kv_snapshot_check(const kv_snapshot *s, const kv_snapshot_model *m, kv_cache *cache) {
    KV_TRY(check_model(s, m));
    for (int32_t i = 0; i < m->n_layers; i++) KV_TRY(check_layer(s, m, kv_cache_store(cache, i), i));
    return KVANT_OK;
}

/* ---- from one coding to another ---- */

/* K or V of a layer: where its rows come from and go to. */
typedef struct transfer {
    const kv_dtype *from_dtype;
    const kv_head_code *from_head, *to_head;
    const uint8_t *rows;
    const kv_tensor *to;
    int32_t n_heads;
    const kv_rope *rope; /* of keys whose centres differ */
    const kv_centre *from_centre, *to_centre;
} transfer;

/* Memory for any of them, there before anything changes. */
typedef struct scratch {
    uint8_t *plain;                  /* KV_SNAPSHOT_ROWS rows as the store codes them */
    uint8_t *staging;                /* kv_rows_write */
    float *decoded, *heads, *stored; /* a row */
    float *shift, *rotated;          /* of a row: one centre less the other; by position */
    float *angles;
} scratch;

static bool same_centre(const kv_centre *a, const kv_centre *b, int32_t n_heads) {
    int32_t n = a ? a->n_pairs : 0;
    if (n != (b ? b->n_pairs : 0)) return false;
    size_t items = (size_t)n_heads * (size_t)n;
    return !items || (memcmp(a->pairs, b->pairs, items * sizeof *a->pairs) == 0 &&
                      memcmp(a->mean, b->mean, 2 * items * sizeof *a->mean) == 0);
}

static bool same_coding(const transfer *t) {
    return t->from_dtype == t->to->dtype && t->from_head->width == t->to_head->width &&
           t->from_head->rotation == t->to_head->rotation &&
           same_centre(t->from_centre, t->to_centre, t->n_heads);
}

static transfer keys_of(const kv_snapshot_layer *l, const kv_store *s, const kv_rope *rope) {
    return (transfer){.from_dtype = l->k_dtype,
                      .from_head = &l->k_head,
                      .to_head = &s->k_head,
                      .rows = l->k_rows,
                      .to = &s->k,
                      .n_heads = s->n_kv_heads,
                      .rope = rope,
                      .from_centre = l->centre.n_pairs ? &l->centre : NULL,
                      .to_centre = s->centre};
}

static transfer values_of(const kv_snapshot_layer *l, const kv_store *s) {
    return (transfer){.from_dtype = l->v_dtype,
                      .from_head = &l->v_head,
                      .to_head = &s->v_head,
                      .rows = l->v_rows,
                      .to = &s->v,
                      .n_heads = s->n_kv_heads};
}

/* What the store's keys lack and the file's do not: both centres, before they are rotated. */
static void centre_shift(const transfer *t, const scratch *x) {
    int32_t dim = t->to_head->dim;
    memset(x->shift, 0, (size_t)t->n_heads * (size_t)dim * sizeof *x->shift);
    if (t->from_centre) kv_centre_add(x->shift, t->from_centre, t->n_heads, dim, t->rope, 1);
    if (t->to_centre) kv_centre_add(x->shift, t->to_centre, t->n_heads, dim, t->rope, -1);
}

static void move_centre(const transfer *t, const scratch *x, int64_t stored) {
    int32_t dim = t->to_head->dim, n = t->n_heads * dim;
    kv_rope_table_row(x->angles, t->rope, (double)stored, t->rope->magnitude);
    memcpy(x->rotated, x->shift, (size_t)n * sizeof *x->rotated);
    for (int32_t h = 0; h < t->n_heads; h++) kv_rope_rotate(x->rotated + h * dim, t->rope, x->angles);
    for (int32_t i = 0; i < n; i++) x->heads[i] += x->rotated[i];
}

/* One row of the file as the store would code it. */
static void convert_row(const transfer *t, const scratch *x, uint8_t *to, const uint8_t *from,
                        int64_t stored) {
    t->from_dtype->decode(x->decoded, from, (int64_t)t->n_heads * t->from_head->width);
    kv_heads_restore(x->heads, x->decoded, t->n_heads, t->from_head);
    if (t->from_centre || t->to_centre) move_centre(t, x, stored);
    kv_heads_store(x->stored, x->heads, t->n_heads, t->to_head);
    kv_dtype_encode_close(t->to->dtype, to, x->stored, t->to->cols);
}

/* ---- rows into cells ---- */

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/* Rows [row, row + n) into cells that lie together, the first of them rotated by `stored`. */
static kv_status move_rows(const transfer *t, const scratch *x, int64_t row, int32_t cell, int32_t n,
                           int64_t stored) {
    size_t from_bytes = kv_dtype_bytes(t->from_dtype, (int64_t)t->n_heads * t->from_head->width);
    size_t to_bytes = kv_dtype_bytes(t->to->dtype, t->to->cols);
    const uint8_t *from = t->rows + (size_t)row * from_bytes;
    if (same_coding(t)) return kv_rows_write(t->to, from, cell, n, x->staging);
    for (int32_t i = 0; i < n; i++)
        convert_row(t, x, x->plain + (size_t)i * to_bytes, from + (size_t)i * from_bytes, stored + i);
    return kv_rows_write(t->to, x->plain, cell, n, x->staging);
}

/* Both lists are of the same positions, torn at other places: first_cell is a row in the file's, a cell in
 * the cache's. */
static kv_status move_spans(const transfer *t, const scratch *x, kv_span_list from, kv_span_list to) {
    centre_shift(t, x);
    const kv_span *a = from.at;
    for (size_t i = 0, at = 0; i < to.count; i++) {
        const kv_span *b = &to.at[i];
        for (int32_t k = 0, n; k < b->n_cells; k += n) {
            n = least(least(b->n_cells - k, a->n_cells - (int32_t)at), KV_SNAPSHOT_ROWS);
            if (!kv_span_released(b))
                KV_TRY(move_rows(t, x, a->first_cell + (int64_t)at, b->first_cell + k, n, b->stored + k));
            at += (size_t)n;
            if (at == (size_t)a->n_cells) at = 0, a++;
        }
    }
    return KVANT_OK;
}

/* ---- all of it ---- */

typedef struct restore {
    const kv_snapshot *s;
    const kv_snapshot_model *model;
    kv_cache *cache;
    int32_t seq;
    kv_span_list *groups; /* for each group of the cache: what the file has of its layers */
    int32_t *tokens;
    scratch scratch;
} restore;

static kv_span_list spans_of(const kv_snapshot *s, int32_t group) {
    return (kv_span_list){s->groups[group].spans.list.at, s->groups[group].spans.list.count};
}

static bool is_whole(const kv_snapshot_group *g) { return g->n_rows == g->spans.n_cells; }

/* A file in which layers with a window had let go of cells cannot fill a cache that keeps them. */
static kv_status match_layer(restore *r, int32_t layer, int32_t *theirs) {
    int32_t ours = kv_cache_group(r->cache, layer);
    const kv_snapshot_group *g = &r->s->groups[r->s->layers[layer].group];
    const kv_snapshot_group *others = theirs[ours] < 0 ? g : &r->s->groups[theirs[ours]];
    if (!is_whole(g) && (!ours || others != g))
        return kv_fail(KVANT_UNSUPPORTED,
                       "layer %d has %lld of %lld cells, those of its window; this cache keeps more", layer,
                       (long long)g->n_rows, (long long)g->spans.n_cells);
    theirs[ours] = r->s->layers[layer].group;
    r->groups[ours] = spans_of(r->s, theirs[ours]);
    return KVANT_OK;
}

/* Groups are made of layers with the same window, there as here. */
static kv_status match_groups(restore *r) {
    int32_t n = kv_cache_n_groups(r->cache);
    r->groups = kv_alloc((size_t)n, sizeof *r->groups);
    int32_t *theirs = kv_alloc((size_t)n, sizeof *theirs);
    kv_status status = r->groups && theirs ? KVANT_OK : KVANT_NO_MEMORY;
    for (int32_t i = 0; !status && i < n; i++) {
        r->groups[i] = spans_of(r->s, 0);
        theirs[i] = -1;
    }
    for (int32_t i = 0; !status && i < r->s->n_layers; i++) status = match_layer(r, i, theirs);
    kv_free(theirs);
    return status;
}

static void raise(size_t *most, size_t n) {
    if (n > *most) *most = n;
}

static kv_status reserve_scratch(restore *r) {
    size_t plain = 1, staging = 1, numbers = 1;
    for (int32_t i = 0; i < r->s->n_layers; i++) {
        const kv_store *s = kv_cache_store(r->cache, i);
        const kv_snapshot_layer *l = &r->s->layers[i];
        size_t heads = (size_t)s->n_kv_heads;
        raise(&plain, kv_dtype_bytes(s->k.dtype, s->k.cols));
        raise(&plain, kv_dtype_bytes(s->v.dtype, s->v.cols));
        raise(&staging, kv_rows_staging(&s->k));
        raise(&staging, kv_rows_staging(&s->v));
        raise(&numbers,
              heads * (size_t)(l->k_head.width > s->k_head.width ? l->k_head.width : s->k_head.width));
        raise(&numbers,
              heads * (size_t)(l->v_head.width > s->v_head.width ? l->v_head.width : s->v_head.width));
    }
    scratch *x = &r->scratch;
    r->tokens = kv_alloc((size_t)r->s->n_tokens, sizeof *r->tokens);
    x->plain = kv_alloc(KV_SNAPSHOT_ROWS, plain);
    x->staging = kv_alloc(1, staging);
    x->decoded = kv_alloc(6 * numbers, sizeof *x->decoded); /* n_rot is at most a head */
    if (!r->tokens || !x->plain || !x->staging || !x->decoded) return KVANT_NO_MEMORY;
    float **parts[] = {&x->heads, &x->stored, &x->shift, &x->rotated, &x->angles};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) *parts[i] = x->decoded + (i + 1) * numbers;
    return KVANT_OK;
}

static kv_status move_layer(const restore *r, int32_t layer) {
    const kv_snapshot_layer *l = &r->s->layers[layer];
    const kv_store *s = kv_cache_store(r->cache, layer);
    kv_span_list to = kv_cache_spans(r->cache, kv_cache_group(r->cache, layer), r->seq);
    kv_span_list from = spans_of(r->s, l->group);
    transfer keys = keys_of(l, s, &r->model->ropes[r->model->rope_of[layer]]), values = values_of(l, s);
    KV_TRY(move_spans(&keys, &r->scratch, from, to));
    return move_spans(&values, &r->scratch, from, to);
}

static kv_status run(restore *r) {
    KV_TRY(match_groups(r));
    KV_TRY(reserve_scratch(r));
    for (int64_t i = 0; i < r->s->n_tokens; i++) r->tokens[i] = kv_snapshot_token(r->s, i);
    KV_TRY(kv_cache_adopt(r->cache, r->seq, r->groups));
    kv_status status = KVANT_OK;
    for (int32_t i = 0; i < r->s->n_layers && !status; i++) status = move_layer(r, i);
    if (status) { /* of a device: what is half-written must not be read */
        kv_status cleared = kv_cache_remove(r->cache, r->seq, 0, -1);
        return cleared ? cleared : status;
    }
    kv_cache_write_tokens(r->cache, r->seq, r->tokens);
    return KVANT_OK;
}

kv_status kv_snapshot_restore(const kv_snapshot *s, const kv_snapshot_model *model, kv_cache *cache,
                              int32_t seq) {
    restore r = {.s = s, .model = model, .cache = cache, .seq = seq};
    kv_status status = run(&r);
    kv_free(r.groups);
    kv_free(r.tokens);
    kv_free(r.scratch.plain);
    kv_free(r.scratch.staging);
    kv_free(r.scratch.decoded);
    return status;
}
