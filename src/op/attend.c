/* attend: softmax(q K^T * scale) V, head by head in double, each query turned into the frame of each run. */
#include "op/attend.h"

#include <math.h>
#include <string.h>

static kv_status check(const kv_node *n) {
    const kv_attend_params *p = n->params;
    const kv_store *s = p->store;
    KV_TRY(kv_check_plain(n->in[0], "q"));
    if (p->n_heads < 1 || p->n_heads % s->n_kv_heads)
        return kv_fail(KVANT_INVALID, "%d heads, not a multiple of %d KV heads", p->n_heads, s->n_kv_heads);
    KV_TRY(kv_check_shape(n->in[0], "q", -1, (int64_t)p->n_heads * s->k_head.dim));
    if (p->rope->n_rot > s->k_head.dim)
        return kv_fail(KVANT_INVALID, "%d rotary dimensions, more than the head's %d", p->rope->n_rot,
                       s->k_head.dim);
    if (p->rope->n_rot) KV_TRY(kv_check_shape(n->in[1], "rope table", -1, p->rope->n_rot));
    return kv_check_shape(n->out, "out", n->in[0]->rows, (int64_t)p->n_heads * s->v_head.dim);
}

typedef struct state { /* of one query head */
    double *scores;
    float *q, *turned, *k, *v;
    double *out;
} state;

static double dot(const float *a, const float *b, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Scores of every visible cell, in order; returns how many. */
static kv_status score_all(const kv_node *n, const kv_seq_view *seq, int32_t token, int32_t head, state *st,
                           int64_t *count) {
    const kv_attend_params *p = n->params;
    const kv_store *s = p->store;
    int32_t kv_head = head / (p->n_heads / s->n_kv_heads), first;
    *count = 0;
    for (int32_t r = 0; r < seq->n_runs; r++) {
        const kv_run *run = &p->batch->runs[seq->first_run + r];
        memcpy(st->turned, st->q, (size_t)s->k_head.dim * sizeof *st->q);
        if (run->turn >= 0 && p->rope->n_rot)
            kv_rope_rotate(st->turned, p->rope, kv_tensor_row(n->in[1], run->turn));
        int32_t seen = kv_run_visible(run, p->batch->pos[token], p->window, &first);
        for (int32_t c = 0; c < seen; c++) {
            KV_TRY(
                kv_store_read_key(st->k, s, run->first_cell + first + c, run->stored + first + c, p->rope));
            double x = dot(st->turned, st->k + kv_head * s->k_head.dim, s->k_head.dim) * (double)p->scale;
            if (p->softcap > 0) x = (double)p->softcap * tanh(x / (double)p->softcap);
            st->scores[(*count)++] = x;
        }
    }
    return KVANT_OK;
}

static kv_status mix_values(const kv_node *n, const kv_seq_view *seq, int32_t token, int32_t head, state *st,
                            int64_t count) {
    const kv_attend_params *p = n->params;
    const kv_store *s = p->store;
    int32_t kv_head = head / (p->n_heads / s->n_kv_heads), first;
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++) max = fmax(max, st->scores[i]);
    for (int64_t i = 0; i < count; i++) sum += st->scores[i] = exp(st->scores[i] - max);
    memset(st->out, 0, (size_t)s->v_head.dim * sizeof *st->out);
    int64_t i = 0;
    for (int32_t r = 0; r < seq->n_runs; r++) {
        const kv_run *run = &p->batch->runs[seq->first_run + r];
        int32_t seen = kv_run_visible(run, p->batch->pos[token], p->window, &first);
        for (int32_t c = 0; c < seen; c++, i++) {
            KV_TRY(kv_store_read_value(st->v, s, run->first_cell + first + c));
            for (int32_t d = 0; d < s->v_head.dim; d++)
                st->out[d] += st->scores[i] / sum * (double)st->v[kv_head * s->v_head.dim + d];
        }
    }
    return KVANT_OK;
}

static kv_status attend_token(const kv_node *n, const kv_seq_view *seq, int32_t token, state *st,
                              float *q_row, float *out_row) {
    const kv_attend_params *p = n->params;
    const kv_store *s = p->store;
    KV_TRY(kv_read_row(q_row, n->in[0], token));
    for (int32_t h = 0; h < p->n_heads; h++) {
        int64_t count;
        memcpy(st->q, q_row + h * s->k_head.dim, (size_t)s->k_head.dim * sizeof *st->q);
        if (p->rope->n_rot) kv_rope_rotate(st->q, p->rope, kv_tensor_row(n->in[1], token));
        KV_TRY(score_all(n, seq, token, h, st, &count));
        KV_TRY(mix_values(n, seq, token, h, st, count));
        for (int32_t d = 0; d < s->v_head.dim; d++) out_row[h * s->v_head.dim + d] = (float)st->out[d];
    }
    kv_write_row(n->out, token, out_row);
    return KVANT_OK;
}

static kv_status attend_sequence(const kv_node *n, const kv_seq_view *seq) {
    const kv_attend_params *p = n->params;
    const kv_store *s = p->store;
    kv_arena arena = {0};
    state st = {
        .scores = kv_arena_alloc(&arena, (size_t)seq->n_cells, sizeof(double)),
        .q = kv_arena_alloc(&arena, (size_t)s->k_head.dim, sizeof(float)),
        .turned = kv_arena_alloc(&arena, (size_t)s->k_head.dim, sizeof(float)),
        .k = kv_arena_alloc(&arena, (size_t)(s->n_kv_heads * s->k_head.dim), sizeof(float)),
        .v = kv_arena_alloc(&arena, (size_t)(s->n_kv_heads * s->v_head.dim), sizeof(float)),
        .out = kv_arena_alloc(&arena, (size_t)s->v_head.dim, sizeof(double)),
    };
    float *q_row = kv_arena_alloc(&arena, (size_t)n->in[0]->cols, sizeof *q_row);
    float *out_row = kv_arena_alloc(&arena, (size_t)n->out->cols, sizeof *out_row);
    bool complete = st.scores && st.q && st.turned && st.k && st.v && st.out && q_row && out_row;
    kv_status status = complete ? KVANT_OK : KVANT_NO_MEMORY;
    for (int32_t i = 0; !status && i < seq->n_tokens; i++)
        status = attend_token(n, seq, seq->first_token + i, &st, q_row, out_row);
    kv_arena_clear(&arena);
    return status;
}

static kv_status reference(const kv_node *n) {
    const kv_attend_params *p = n->params;
    for (int32_t i = 0; i < p->batch->n_seqs; i++) KV_TRY(attend_sequence(n, &p->batch->seqs[i]));
    return KVANT_OK;
}

const kv_op kv_op_attend = {.name = "attend", .check = check, .reference = reference};

kv_tensor *kv_attend(kv_graph *g, const kv_attend_params *p, kv_tensor *q, kv_tensor *table,
                     const kv_dtype *out) {
    if (g->status || !q) return NULL;
    kv_node node = {.op = &kv_op_attend,
                    .in = {q, table},
                    .params = p,
                    .reads = p->store,
                    .home = p->store->k.buffer->device};
    node.out = kv_graph_tensor(g, out, q->rows, (int64_t)p->n_heads * p->store->v_head.dim);
    return kv_graph_add(g, &node, sizeof *p);
}
