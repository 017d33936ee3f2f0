/* sequence.c: operations on the sequences of a session. A shift is lazy (spans turn, no key is touched) or,
 * where the session was created so, eager: then keys are rotated in place by a plan of one cache_move and one
 * cache_shift for each layer, on the device that owns the layer. Whatever can fail comes before the plan
 * runs; no cancel is looked at while it does. */
#include "engine/engine.h"
#include "op/cache_move.h"
#include "op/cache_shift.h"

#include <stdio.h>

/* ---- rewriting keys ---- */

static void add_layer(kvant_session *s, kv_graph *g, int32_t layer) {
    char label[24];
    int n = snprintf(label, sizeof label, "blk.%d", layer);
    const char *copy = kv_arena_strndup(&g->arena, label, (size_t)n);
    int32_t group = kv_cache_group(s->cache, layer);
    kv_store *store = kv_cache_store(s->cache, layer);
    const kv_rope *rope = &s->ropes[s->model->model.hparams.layers[layer].rope];
    g->label = copy ? copy : "blk";
    kv_cache_move(g, &(kv_cache_move_params){store, kv_cache_moves(s->cache, group)});
    if (rope->n_rot)
        kv_cache_shift_keys(g, &(kv_cache_shift_params){rope, store, kv_cache_turns(s->cache, group)});
}

kv_status kv_session_plan_rewrite(kvant_session *s) {
    kv_graph graph;
    if (s->rewrite) return KVANT_OK;
    kv_graph_init(&graph);
    for (int32_t i = 0; i < s->model->model.hparams.n_layers; i++) add_layer(s, &graph, i);
    return kv_plan_create(&s->rewrite, &graph, s->model->devices, s->model->n_devices);
}

static bool has_work(const kvant_session *s) {
    for (int32_t i = 0; i < kv_cache_n_groups(s->cache); i++)
        if (kv_cache_turns(s->cache, i)->n) return true;
    return false;
}

/* What follows one of the cache's `begin` functions: all of it, or nothing. */
static kv_status rewrite(kvant_session *s, kv_status begun) {
    atomic_bool never = false;
    KV_TRY(begun);
    kv_status status = has_work(s) ? kv_session_plan_rewrite(s) : KVANT_OK;
    if (!status && has_work(s)) {
        s->crossed_bytes += (int64_t)kv_plan_crossing_bytes(s->rewrite);
        status = kv_plan_run(s->rewrite, &never);
    }
    if (status)
        kv_cache_abort_rewrite(s->cache);
    else
        kv_cache_commit_rewrite(s->cache);
    return status;
}

kvant_status kvant_seq_compact(kvant_session *s, int32_t seq) {
    return rewrite(s, kv_cache_begin_compact(s->cache, seq));
}

kvant_status kvant_seq_divide(kvant_session *s, int32_t seq, int64_t p0, int64_t p1, int64_t divisor) {
    return rewrite(s, kv_cache_begin_divide(s->cache, seq, p0, p1, divisor));
}

kvant_status kvant_seq_shift(kvant_session *s, int32_t seq, int64_t p0, int64_t p1, int64_t delta) {
    if (s->shift == KVANT_SHIFT_LAZY) return kv_cache_shift(s->cache, seq, p0, p1, delta);
    return rewrite(s, kv_cache_begin_shift(s->cache, seq, p0, p1, delta));
}

kvant_status kvant_seq_drop(kvant_session *s, int32_t seq, int64_t p0, int64_t p1) {
    if (s->shift == KVANT_SHIFT_LAZY) return kv_cache_drop(s->cache, seq, p0, p1);
    return rewrite(s, kv_cache_begin_drop(s->cache, seq, p0, p1));
}

/* ---- the rest ---- */

int64_t kvant_seq_begin(const kvant_session *s, int32_t seq) {
    return kv_session_check_seq(s, seq) ? 0 : kv_cache_begin(s->cache, seq);
}

int64_t kvant_seq_end(const kvant_session *s, int32_t seq) {
    return kv_session_check_seq(s, seq) ? 0 : kv_cache_end(s->cache, seq);
}

int64_t kvant_seq_tokens(const kvant_session *s, int32_t seq) {
    return kv_session_check_seq(s, seq) ? 0 : kv_cache_tokens(s->cache, seq);
}

int64_t kvant_seq_rewind(const kvant_session *s, int32_t seq, int64_t pos) {
    return kv_session_check_seq(s, seq) || pos < 0 ? 0 : kv_cache_rewind(s->cache, seq, pos);
}

kvant_status kvant_seq_remove(kvant_session *s, int32_t seq, int64_t p0, int64_t p1) {
    return kv_cache_remove(s->cache, seq, p0, p1);
}

kvant_status kvant_seq_copy(kvant_session *s, int32_t to, int32_t from) {
    return kv_cache_copy(s->cache, to, from, 0, -1);
}

kvant_status kvant_seq_fork(kvant_session *s, int32_t to, int32_t from, int64_t p0, int64_t p1) {
    return kv_cache_copy(s->cache, to, from, p0, p1);
}

kvant_status kvant_seq_keep(kvant_session *s, int32_t seq) { return kv_cache_keep(s->cache, seq); }

kvant_status kvant_seq_clear(kvant_session *s, int32_t seq) { return kv_cache_remove(s->cache, seq, 0, -1); }

bool kvant_can_shift(const kvant_session *s, const char **reason) {
    bool can = kv_cache_can_turn(s->cache);
    if (reason) *reason = can ? "" : "the model's rotations do not add up: positions cannot be moved";
    return can;
}

/* ---- for callers that can read tokens again ---- */

kv_status kv_session_cut(kvant_session *s, int32_t seq, int64_t pos) {
    return kv_cache_remove(s->cache, seq, kv_cache_rewind(s->cache, seq, pos), -1);
}

kv_status kv_session_drop(kvant_session *s, int32_t seq, int64_t p0, int64_t p1) {
    kv_status status = kvant_seq_drop(s, seq, p0, p1);
    return status == KVANT_UNSUPPORTED ? kv_session_cut(s, seq, p0) : status;
}
