/* session_snapshot.c: sequences in files, for the public API: the cache writes and reads them, here is what
 * it does not know of the model. */
#include "engine/session_snapshot.h"

#include "cache/cell_tokens.h"

/* Which rotation each layer has; owned by the caller. */
static int32_t *list_ropes(const kvant_session *s) {
    const kv_hparams *h = &s->model->model.hparams;
    int32_t *rope_of = kv_alloc((size_t)h->n_layers, sizeof *rope_of);
    for (int32_t i = 0; rope_of && i < h->n_layers; i++) rope_of[i] = (int32_t)h->layers[i].rope;
    return rope_of;
}

static kv_snapshot_model describe(const kvant_session *s, const int32_t *rope_of) {
    const kv_hparams *h = &s->model->model.hparams;
    return (kv_snapshot_model){.name = s->model->name,
                               .architecture = s->model->architecture,
                               .fingerprint = s->model->fingerprint,
                               .n_layers = h->n_layers,
                               .n_embd = h->n_embd,
                               .n_vocab = kv_session_n_vocab(s),
                               .ropes = s->ropes,
                               .n_ropes = KV_N_ROPES,
                               .rope_of = rope_of};
}

kv_status kv_session_save(const kvant_session *s, int32_t seq, const char *path, const void *note,
                          size_t n_note) {
    KV_TRY(kv_session_check_seq(s, seq));
    int32_t *rope_of = list_ropes(s);
    if (!rope_of) return KVANT_NO_MEMORY;
    kv_snapshot_model model = describe(s, rope_of);
    kv_snapshot_job job = {
        .path = path, .model = &model, .cache = s->cache, .seq = seq, .note = note, .n_note = n_note};
    kv_status status = kv_snapshot_write(&job);
    kv_free(rope_of);
    return status;
}

kv_status kv_session_open_snapshot(kv_snapshot **out, const kvant_session *s, const char *path) {
    kv_snapshot *snapshot = NULL;
    int32_t *rope_of = list_ropes(s);
    if (!rope_of) return KVANT_NO_MEMORY;
    kv_snapshot_model model = describe(s, rope_of);
    kv_status status = kv_snapshot_open(&snapshot, path);
    if (!status) {
        status = kv_snapshot_check(snapshot, &model, s->cache);
        if (status) kv_fail_in(status, "%s", path);
    }
    kv_free(rope_of);
    if (status)
        kv_snapshot_close(snapshot);
    else
        *out = snapshot;
    return status;
}

kv_status kv_session_restore(kvant_session *s, int32_t seq, const kv_snapshot *snapshot) {
    KV_TRY(kv_session_check_seq(s, seq));
    int32_t *rope_of = list_ropes(s);
    if (!rope_of) return KVANT_NO_MEMORY;
    kv_snapshot_model model = describe(s, rope_of);
    kv_status status = kv_snapshot_restore(snapshot, &model, s->cache, seq);
    kv_free(rope_of);
    return status;
}

/* ---- kvant.h ---- */

kvant_status kvant_seq_save(const kvant_session *s, int32_t seq, const char *path) {
    if (!path) return kv_fail(KVANT_INVALID, "kvant_seq_save: path must not be NULL");
    return kv_session_save(s, seq, path, NULL, 0);
}

kvant_status kvant_seq_load(kvant_session *s, int32_t seq, const char *path) {
    kv_snapshot *snapshot = NULL;
    if (!path) return kv_fail(KVANT_INVALID, "kvant_seq_load: path must not be NULL");
    KV_TRY(kv_session_check_seq(s, seq));
    KV_TRY(kv_session_open_snapshot(&snapshot, s, path));
    kv_status status = kv_session_restore(s, seq, snapshot);
    if (status && status != KVANT_NO_MEMORY) kv_fail_in(status, "%s", path);
    kv_snapshot_close(snapshot);
    return status;
}

kvant_status kvant_seq_get_tokens(const kvant_session *s, int32_t seq, kvant_token *tokens, size_t capacity,
                                  size_t *n_tokens) {
    KV_TRY(kv_session_check_seq(s, seq));
    *n_tokens = (size_t)kv_cache_tokens(s->cache, seq);
    if (*n_tokens > capacity) return kv_fail(KVANT_INVALID, "%zu tokens, room for %zu", *n_tokens, capacity);
    if (*n_tokens) kv_cache_read_tokens(s->cache, seq, tokens);
    return KVANT_OK;
}

/* Positions 0, 1, ... without a gap: only there is the i-th token at position i. */
static int64_t positions_in_order(const kvant_session *s, int32_t seq) {
    kv_span_list spans = kv_cache_spans(s->cache, 0, seq);
    int64_t end = 0;
    for (size_t i = 0; i < spans.count && kv_span_pos(&spans.at[i]) == end; i++)
        end = kv_span_end(&spans.at[i]);
    return end;
}

static int64_t common_prefix(const kvant_session *s, int32_t seq, const kvant_token *held,
                             const kvant_token *tokens, size_t n_tokens) {
    int64_t n = positions_in_order(s, seq), i = 0;
    if ((size_t)n > n_tokens) n = (int64_t)n_tokens;
    while (i < n && held[i] == tokens[i]) i++;
    return i;
}

kvant_status kvant_seq_reuse(kvant_session *s, int32_t seq, const kvant_token *tokens, size_t n_tokens,
                             size_t *n_reused) {
    KV_TRY(kv_session_check_seq(s, seq));
    kvant_token *held = kv_alloc((size_t)kv_cache_tokens(s->cache, seq), sizeof *held);
    if (!held) return KVANT_NO_MEMORY;
    kv_cache_read_tokens(s->cache, seq, held);
    int64_t n = common_prefix(s, seq, held, tokens, n_tokens);
    kv_free(held);
    if (n && (size_t)n == n_tokens) n--; /* its last token has to be evaluated, for the logits */
    KV_TRY(kv_session_cut(s, seq, n));
    *n_reused = (size_t)kv_cache_end(s->cache, seq);
    return KVANT_OK;
}
