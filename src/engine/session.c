/* session.c: sessions of kvant.h: a cache, plans, evaluation. An evaluation is cut into steps of at most
 * n_batch tokens; the plan for a step's shape is made once and kept. */
#include "cache/cell_tokens.h"
#include "engine/engine.h"
#include "model/decoder.h"

#include <string.h>

enum {
    DEFAULT_CTX = 8192,
    DEFAULT_BATCH = 512,
    MAX_BATCH = 8192,
    MAX_SEQUENCES = 1024,
    MAX_STEP_OUTPUTS = 128, /* rows of logits that one plan holds */
    TURN_ROWS = 8,          /* rope tables grow by */
};

int32_t kv_session_n_vocab(const kvant_session *s) { return kv_tokenizer_size(s->model->tokenizer); }

kv_status kv_session_check_seq(const kvant_session *s, int32_t seq) {
    if (seq >= 0 && seq < s->n_sequences) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "sequence %d: must be 0 to %d", seq, s->n_sequences - 1);
}

int32_t kv_session_room(const kvant_session *s) { return kv_cache_free_cells(s->cache); }

/* ---- creation ---- */

static kv_status check_number(const char *name, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "%s: %lld, must be %lld to %lld", name, (long long)value, (long long)low,
                   (long long)high);
}

static kv_status set_sizes(kvant_session *s, const kvant_session_options *o) {
    int32_t n_train = s->model->model.hparams.n_ctx_train;
    KV_TRY(check_number("n_ctx", o->n_ctx, 0, 1 << 28));
    KV_TRY(check_number("n_batch", o->n_batch, 0, MAX_BATCH));
    KV_TRY(check_number("n_sequences", o->n_sequences, 0, MAX_SEQUENCES));
    KV_TRY(check_number("act", (int64_t)o->act, KVANT_ACT_FAST, KVANT_ACT_F32));
    s->n_ctx = o->n_ctx ? o->n_ctx : n_train < DEFAULT_CTX ? n_train : DEFAULT_CTX;
    s->n_batch = o->n_batch ? o->n_batch : DEFAULT_BATCH;
    if (s->n_batch > s->n_ctx) s->n_batch = s->n_ctx;
    s->n_sequences = o->n_sequences ? o->n_sequences : 1;
    KV_TRY(check_number("shift", (int64_t)o->shift, KVANT_SHIFT_LAZY, KVANT_SHIFT_EAGER));
    KV_TRY(check_number("window_margin", o->window_margin, -1, 1 << 28));
    KV_TRY(check_number("n_pin", o->n_pin, 0, 1 << 28));
    s->act = o->act;
    s->shift = o->shift;
    return KVANT_OK;
}

static kv_status create_session(kvant_session *s, const kvant_session_options *o) {
    KV_TRY(set_sizes(s, o));
    KV_TRY(kv_model_ropes(s->ropes, &s->model->model, s->n_ctx, &s->arena));
    KV_TRY(kv_session_create_cache(s, o));
    s->tokens = kv_alloc((size_t)s->n_batch, sizeof *s->tokens);
    s->output_rows = kv_alloc((size_t)s->n_batch, sizeof *s->output_rows);
    s->parts = kv_alloc((size_t)s->n_sequences, sizeof *s->parts);
    if (!s->tokens || !s->output_rows || !s->parts) return KVANT_NO_MEMORY;
    return s->shift == KVANT_SHIFT_EAGER ? kv_session_plan_rewrite(s) : KVANT_OK;
}

kv_status kv_session_create(kvant_session **out, kvant_model *model, const kvant_session_options *options,
                            const kv_centre_set *centre_set) {
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    if (!out || !model) return kv_fail(KVANT_INVALID, "kvant_session_create: out and model must not be NULL");
    KV_TRY(kv_take_struct(&o, sizeof o, options, "kvant_session_options"));
    if (model->vocab_only)
        return kv_fail(KVANT_INVALID, "the model was opened with vocab_only: it cannot be run");
    kvant_session *s = kv_alloc(1, sizeof *s);
    if (!s) return KVANT_NO_MEMORY;
    s->model = model;
    s->centre_set = centre_set;
    kv_status status = create_session(s, &o);
    s->centre_set = NULL;
    if (status)
        kvant_session_close(s);
    else
        *out = s;
    return status;
}

kvant_status kvant_session_create(kvant_session **out, kvant_model *model,
                                  const kvant_session_options *options) {
    return kv_session_create(out, model, options, NULL);
}

void kvant_session_close(kvant_session *s) {
    if (!s) return;
    for (int i = 0; i < KV_N_PLANS; i++) kv_plan_destroy(s->plans[i].plan);
    kv_plan_destroy(s->rewrite);
    kv_cache_destroy(s->cache);
    kv_arena_clear(&s->arena);
    kv_free(s->tokens);
    kv_free(s->output_rows);
    kv_free(s->parts);
    kv_free(s->logits);
    kv_free(s);
}

void kvant_session_cancel(kvant_session *s) { atomic_store(&s->cancel, true); }

void kvant_session_resume(kvant_session *s) { atomic_store(&s->cancel, false); }

/* ---- plans ---- */

static kv_status make_plan(kvant_session *s, kv_plan_slot *slot) {
    kv_graph graph;
    kv_graph_init(&graph);
    kv_forward f = {.graph = &graph,
                    .model = &s->model->model,
                    .cache = s->cache,
                    .ropes = s->ropes,
                    .act = s->act == KVANT_ACT_FAST ? &kv_dtype_a8 : NULL,
                    .tokens = s->tokens,
                    .output_rows = s->output_rows,
                    .n_tokens = slot->n_tokens,
                    .n_outputs = slot->n_outputs,
                    .n_table_rows = slot->n_tokens + slot->n_turns};
    slot->logits = kv_decoder_forward(&f);
    return kv_plan_create(&slot->plan, &graph, s->model->devices, s->model->n_devices);
}

/* For the turns of any group, with some to spare. */
static int32_t turn_rows(const kvant_session *s) {
    int32_t most = 0;
    for (int32_t i = 0; i < kv_cache_n_groups(s->cache); i++)
        if (kv_cache_angles(s->cache, i)->n_turns > most) most = kv_cache_angles(s->cache, i)->n_turns;
    return (most + TURN_ROWS - 1) / TURN_ROWS * TURN_ROWS;
}

/* The plan for this shape, made in the place of the one unused for longest if it is new. */
kv_status kv_session_find_plan(kvant_session *s, int32_t n_tokens, int32_t n_outputs, kv_plan_slot **out) {
    int32_t turns = turn_rows(s);
    kv_plan_slot *oldest = &s->plans[0];
    for (int i = 0; i < KV_N_PLANS; i++) {
        kv_plan_slot *p = *out = &s->plans[i];
        if (p->plan && p->n_tokens == n_tokens && p->n_outputs == n_outputs && p->n_turns >= turns)
            return KVANT_OK;
        if (p->last_used < oldest->last_used) oldest = p;
    }
    kv_plan_destroy(oldest->plan);
    *oldest = (kv_plan_slot){.n_tokens = n_tokens, .n_outputs = n_outputs, .n_turns = turns};
    *out = oldest;
    return make_plan(s, oldest);
}

/* ---- evaluation ---- */

static int32_t outputs_of(const kvant_chunk *c) {
    return c->logits == KVANT_LOGITS_ALL ? c->n_tokens : c->logits == KVANT_LOGITS_LAST ? 1 : 0;
}

static kv_status check_chunk(const kvant_session *s, const kvant_chunk *chunks, int32_t i) {
    const kvant_chunk *c = &chunks[i];
    KV_TRY(kv_session_check_seq(s, c->sequence));
    for (int32_t j = 0; j < i; j++)
        if (chunks[j].sequence == c->sequence)
            return kv_fail(KVANT_INVALID, "sequence %d occurs twice in one evaluation", c->sequence);
    if (c->n_tokens < 1 || !c->tokens) return kv_fail(KVANT_INVALID, "chunk %d has no tokens", i);
    for (int32_t t = 0; t < c->n_tokens; t++)
        if (c->tokens[t] < 0 || c->tokens[t] >= kv_session_n_vocab(s))
            return kv_fail(KVANT_INVALID, "token %d: must be 0 to %d", c->tokens[t],
                           kv_session_n_vocab(s) - 1);
    return KVANT_OK;
}

static kv_status check_chunks(const kvant_session *s, const kvant_chunk *chunks, int32_t n_chunks) {
    int64_t n_tokens = 0;
    if (n_chunks < 1 || n_chunks > s->n_sequences)
        return kv_fail(KVANT_INVALID, "%d chunks: must be 1 to %d", n_chunks, s->n_sequences);
    for (int32_t i = 0; i < n_chunks; i++) {
        KV_TRY(check_chunk(s, chunks, i));
        n_tokens += chunks[i].n_tokens;
    }
    if (n_tokens > kv_session_room(s))
        return kv_fail(KVANT_CONTEXT_FULL, "context is full: %lld tokens to add, room for %d of %d",
                       (long long)n_tokens, kv_session_room(s), s->n_ctx);
    return KVANT_OK;
}

static kv_status reserve_logits(kvant_session *s, const kvant_chunk *chunks, int32_t n_chunks) {
    size_t rows = 0;
    for (int32_t i = 0; i < n_chunks; i++) rows += (size_t)outputs_of(&chunks[i]);
    size_t need = rows * (size_t)kv_session_n_vocab(s);
    s->n_logits = 0;
    if (need <= s->logits_capacity) return KVANT_OK;
    float *grown = kv_realloc(s->logits, need, sizeof *grown);
    if (!grown) return KVANT_NO_MEMORY;
    s->logits = grown;
    s->logits_capacity = need;
    return KVANT_OK;
}

/* Where an evaluation stands. */
typedef struct cursor {
    const kvant_chunk *chunks;
    int32_t n_chunks, chunk, token;       /* next token */
    int32_t n_parts, n_tokens, n_outputs; /* of the step */
} cursor;

/* Fills tokens, output_rows and parts with the next step. */
static void fill_step(kvant_session *s, cursor *c) {
    c->n_parts = c->n_tokens = c->n_outputs = 0;
    while (c->chunk < c->n_chunks && c->n_tokens < s->n_batch && c->n_outputs < MAX_STEP_OUTPUTS) {
        const kvant_chunk *chunk = &c->chunks[c->chunk];
        kv_cache_part *part = &s->parts[c->n_parts++];
        *part = (kv_cache_part){.seq = chunk->sequence};
        while (c->token < chunk->n_tokens && c->n_tokens < s->n_batch && c->n_outputs < MAX_STEP_OUTPUTS) {
            bool wanted = chunk->logits == KVANT_LOGITS_ALL ||
                          (chunk->logits == KVANT_LOGITS_LAST && c->token + 1 == chunk->n_tokens);
            if (wanted) s->output_rows[c->n_outputs++] = c->n_tokens;
            s->tokens[c->n_tokens++] = chunk->tokens[c->token++];
            part->n_tokens++;
        }
        if (c->token < chunk->n_tokens) return;
        c->chunk++;
        c->token = 0;
    }
}

static kv_status run_step(kvant_session *s, const cursor *c) {
    kv_plan_slot *slot;
    KV_TRY(kv_cache_append(s->cache, s->parts, c->n_parts));
    kv_cache_note_tokens(s->cache, s->tokens);
    KV_TRY(kv_session_find_plan(s, c->n_tokens, c->n_outputs, &slot));
    slot->last_used = ++s->n_runs;
    KV_TRY(kv_plan_run(slot->plan, &s->cancel));
    size_t n_vocab = (size_t)kv_session_n_vocab(s), rows = (size_t)c->n_outputs;
    s->crossed_bytes += (int64_t)kv_plan_crossing_bytes(slot->plan);
    if (rows) KV_TRY(kv_tensor_download(s->logits + (size_t)s->n_logits * n_vocab, slot->logits));
    s->n_logits += c->n_outputs;
    return KVANT_OK;
}

kvant_status kvant_eval(kvant_session *s, const kvant_chunk *chunks, int32_t n_chunks) {
    KV_TRY(check_chunks(s, chunks, n_chunks));
    KV_TRY(reserve_logits(s, chunks, n_chunks));
    kv_status status = atomic_load(&s->cancel) ? kv_fail(KVANT_CANCELLED, "cancelled") : KVANT_OK;
    for (cursor c = {.chunks = chunks, .n_chunks = n_chunks}; !status && c.chunk < n_chunks;) {
        fill_step(s, &c);
        status = run_step(s, &c);
    }
    if (!status) {
        kv_cache_commit(s->cache);
        return KVANT_OK;
    }
    s->n_logits = 0;
    kv_cache_rollback(s->cache);
    return status;
}

const float *kvant_logits(const kvant_session *s, int32_t i) {
    if (i < 0 || i >= s->n_logits) return NULL;
    return s->logits + (size_t)i * (size_t)kv_session_n_vocab(s);
}

int32_t kvant_n_logits(const kvant_session *s) { return s->n_logits; }

/* ---- figures ---- */

static bool same_store(const kvant_session *s, int32_t a, int32_t b) {
    const kv_store *x = kv_cache_store(s->cache, a), *y = kv_cache_store(s->cache, b);
    const kv_layer_hparams *layers = s->model->model.hparams.layers;
    return x->k.dtype == y->k.dtype && x->v.dtype == y->v.dtype && x->k.cols == y->k.cols &&
           x->v.cols == y->v.cols && x->k.layout == y->k.layout && x->v.layout == y->v.layout &&
           (x->centre ? x->centre->n_pairs : 0) == (y->centre ? y->centre->n_pairs : 0) &&
           x->k.buffer->device == y->k.buffer->device && layers[a].window == layers[b].window;
}

/* Of one cell. */
static int64_t store_bytes(const kvant_session *s, int32_t layer) {
    const kv_store *st = kv_cache_store(s->cache, layer);
    return (int64_t)(kv_dtype_bytes(st->k.dtype, st->k.cols) + kv_dtype_bytes(st->v.dtype, st->v.cols));
}

/* The layer behind the last that stores like `first`, from there on. */
static int32_t row_end(const kvant_session *s, int32_t first) {
    int32_t end = first + 1;
    while (end < s->model->model.hparams.n_layers && same_store(s, first, end)) end++;
    return end;
}

void kvant_session_get_info(const kvant_session *s, kvant_session_info *info) {
    kvant_session_info i = {.n_ctx = s->n_ctx,
                            .n_batch = s->n_batch,
                            .n_sequences = s->n_sequences,
                            .kv_bytes_per_token = kv_cache_bytes_per_cell(s->cache),
                            .weight_bytes_per_token = s->model->model.weights.bytes_per_token,
                            .n_kv_rows = 0,
                            .centre_source = kv_session_centre_text(s)};
    for (int32_t layer = 0; layer < s->model->model.hparams.n_layers; layer++) {
        int32_t group = kv_cache_group(s->cache, layer), n = kv_cache_group_cells(s->cache, group);
        i.kv_bytes_total += store_bytes(s, layer) * n;
        i.kv_bytes_used += store_bytes(s, layer) * (n - kv_cache_group_free(s->cache, group));
    }
    if (s->rewrite) i.scratch_bytes += (int64_t)kv_plan_scratch_bytes(s->rewrite);
    for (int p = 0; p < KV_N_PLANS; p++)
        if (s->plans[p].plan) i.scratch_bytes += (int64_t)kv_plan_scratch_bytes(s->plans[p].plan);
    for (int32_t layer = 0; layer < s->model->model.hparams.n_layers; i.n_kv_rows++)
        layer = row_end(s, layer);
    i.n_devices = s->model->n_devices;
    i.crossed_bytes = s->crossed_bytes;
    kv_give_struct(info, &i, sizeof i);
}

kvant_status kvant_session_kv_row(const kvant_session *s, int32_t index, kvant_kv_row *row) {
    int32_t first = 0;
    for (int32_t i = 0; i < index && first < s->model->model.hparams.n_layers; i++) first = row_end(s, first);
    if (index < 0 || first >= s->model->model.hparams.n_layers)
        return kv_fail(KVANT_INVALID, "KV row %d does not exist", index);
    int32_t end = row_end(s, first);
    const kv_store *st = kv_cache_store(s->cache, first);
    kvant_kv_row r = {.first_layer = first,
                      .last_layer = end - 1,
                      .type_k = st->k.dtype->name,
                      .type_v = st->v.dtype->name,
                      .layout_k = st->k.layout->name,
                      .layout_v = st->v.layout->name,
                      .device = st->k.buffer->device->name,
                      .rotation_k = st->k_head.rotation,
                      .rotation_v = st->v_head.rotation,
                      .window = s->model->model.hparams.layers[first].window,
                      .bytes_per_token = store_bytes(s, first) * (end - first),
                      .n_cells = kv_cache_group_cells(s->cache, kv_cache_group(s->cache, first)),
                      .centre_pairs = st->centre ? st->centre->n_pairs : 0,
                      .k_bits = 8.0 * (double)st->k.dtype->block_bytes / st->k.dtype->block_elems};
    r.bytes_total = r.bytes_per_token * r.n_cells;
    kv_give_struct(row, &r, sizeof r);
    return KVANT_OK;
}
