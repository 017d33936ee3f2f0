/* cpu_attend.c: driver of attend. Phase 0: an item is a few query rows (the heads that share a KV head, for
 * some tokens of one sequence) against a part of the sequence's cells, walked in blocks with a running
 * softmax (Milakov and Gimelshein 2018); it leaves sums, maximum and weight in the node's workspace. Phase 1:
 * an item is a token; parts are merged in order and the row is coded. The split depends on the batch alone,
 * never on the number of threads.
 *
 *     shared: for each token, head, part:  [o: v_dim floats][max][weight]
 */
#include "device/cpu/cpu_op.h"
#include "op/attend.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK_CELLS = 64,
    MAX_QUERY_ROWS = 32, /* of an item */
    FEW_TOKENS = 32,     /* up to here sequences are split into parts */
    MAX_PARTS = 16,
    MIN_PART_CELLS = 256,
};

typedef struct attend_impl {
    kv_cpu_impl head;
    kv_score_fn *score;
    kv_accumulate_fn *accumulate;
    kv_exp_sum_fn *exp_sum;
    kv_encode_fn *encode;
    int32_t group;      /* query heads per KV head */
    int32_t item_heads; /* of an item */
    int32_t splits;     /* items a group is cut into */
    int32_t item_tokens;
    int32_t max_parts;
} attend_impl;

/* One item of phase 0. */
typedef struct piece {
    const kv_seq_view *seq;
    int32_t kv_head, first_head, n_heads; /* query heads, absolute */
    int32_t first_token, n_tokens;
    int32_t part, n_parts;
} piece;

/* A thread's workspace. Query row i = token (i / n_heads), head (i % n_heads) of the item. */
typedef struct rows {
    float *q, *turned, *s, *o, *max, *weight;
} rows;

static const kv_attend_params *params_of(const kv_node *n) { return n->params; }

static int32_t parts_of(const attend_impl *a, const kv_seq_view *seq) {
    int64_t parts = seq->n_cells / MIN_PART_CELLS;
    return (int32_t)(parts < 1 ? 1 : parts > a->max_parts ? a->max_parts : parts);
}

static int32_t token_blocks(const attend_impl *a, const kv_seq_view *seq) {
    return (seq->n_tokens + a->item_tokens - 1) / a->item_tokens;
}

/* ---- workspaces ---- */

static size_t part_floats(const kv_store *s) { return (size_t)s->v_head.dim + 2; }

static float *part_at(const kv_node *n, int64_t token, int32_t head, int32_t part) {
    const attend_impl *a = n->impl;
    size_t index =
        ((size_t)token * (size_t)params_of(n)->n_heads + (size_t)head) * (size_t)a->max_parts + (size_t)part;
    return (float *)a->head.shared + index * part_floats(params_of(n)->store);
}

static size_t rows_bytes(const kv_store *s) {
    size_t row =
        2 * kv_round_up((size_t)s->k_head.dim, 16) + BLOCK_CELLS + kv_round_up((size_t)s->v_head.dim, 16);
    return (MAX_QUERY_ROWS * row + 2 * MAX_QUERY_ROWS) * sizeof(float);
}

static rows rows_at(void *work, const kv_store *s) {
    size_t k = MAX_QUERY_ROWS * kv_round_up((size_t)s->k_head.dim, 16),
           v = MAX_QUERY_ROWS * kv_round_up((size_t)s->v_head.dim, 16);
    rows r = {.q = work};
    r.turned = r.q + k;
    r.s = r.turned + k;
    r.o = r.s + MAX_QUERY_ROWS * BLOCK_CELLS;
    r.max = r.o + v;
    r.weight = r.max + MAX_QUERY_ROWS;
    return r;
}

/* ---- preparing ---- */

static bool attend_accepts(const kv_node *n, unsigned cpu) {
    const kv_store *s = params_of(n)->store;
    return n->in[0]->dtype == KV_FLOAT && !s->centre && s->k_head.rotation == 1 && s->v_head.rotation == 1 &&
           s->k_head.width == s->k_head.dim && s->v_head.width == s->v_head.dim &&
           kv_kernel_pick(KV_ROLE_score, s->k.dtype, NULL, s->k.layout, cpu) &&
           kv_kernel_pick(KV_ROLE_accumulate, s->v.dtype, NULL, s->v.layout, cpu);
}

static kv_status attend_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    const kv_attend_params *p = params_of(n);
    const kv_store *s = p->store;
    const kv_kernel *score = kv_kernel_pick(KV_ROLE_score, s->k.dtype, NULL, s->k.layout, cpu);
    attend_impl a = {
        .head = {.kernel = score->name},
        .score = score->score,
        .accumulate = kv_kernel_pick(KV_ROLE_accumulate, s->v.dtype, NULL, s->v.layout, cpu)->accumulate,
        .exp_sum = kv_kernel_pick(KV_ROLE_exp_sum, NULL, NULL, NULL, cpu)->exp_sum,
        .encode = kv_cpu_encoder(n->out->dtype, cpu),
        .group = p->n_heads / s->n_kv_heads,
        .max_parts = n->out->rows <= FEW_TOKENS ? MAX_PARTS : 1,
    };
    a.item_heads = a.group < MAX_QUERY_ROWS ? a.group : MAX_QUERY_ROWS;
    a.splits = (a.group + a.item_heads - 1) / a.item_heads;
    a.item_tokens = MAX_QUERY_ROWS / a.item_heads;
    size_t out_row = (size_t)n->out->cols * sizeof(float);
    a.head.work_bytes = rows_bytes(s) > out_row ? rows_bytes(s) : out_row;
    a.head.shared_bytes =
        (size_t)n->out->rows * (size_t)p->n_heads * (size_t)a.max_parts * part_floats(s) * sizeof(float);
    n->impl = kv_arena_alloc(arena, 1, sizeof a);
    if (!n->impl) return KVANT_NO_MEMORY;
    memcpy(n->impl, &a, sizeof a);
    return KVANT_OK;
}

static int64_t pieces_of(const attend_impl *a, const kv_attend_params *p, const kv_seq_view *seq) {
    return (int64_t)token_blocks(a, seq) * p->store->n_kv_heads * a->splits * parts_of(a, seq);
}

static int64_t attend_items(const kv_node *n, int32_t phase) {
    const kv_batch_view *batch = params_of(n)->batch;
    if (phase == 1) return batch->n_tokens;
    int64_t items = 0;
    for (int32_t i = 0; i < batch->n_seqs; i++) items += pieces_of(n->impl, params_of(n), &batch->seqs[i]);
    return items;
}

/* Long items first: the last token blocks see the most cells. */
static piece piece_of(const kv_node *n, int64_t item) {
    const attend_impl *a = n->impl;
    const kv_attend_params *p = params_of(n);
    const kv_seq_view *seq = p->batch->seqs;
    for (; item >= pieces_of(a, p, seq); seq++) item -= pieces_of(a, p, seq);
    piece x = {.seq = seq, .n_parts = parts_of(a, seq)};
    x.part = (int32_t)(item % x.n_parts);
    item /= x.n_parts;
    int32_t split = (int32_t)(item % a->splits);
    item /= a->splits;
    x.kv_head = (int32_t)(item % p->store->n_kv_heads);
    int32_t block = token_blocks(a, seq) - 1 - (int32_t)(item / p->store->n_kv_heads);
    x.first_head = x.kv_head * a->group + split * a->item_heads;
    x.n_heads =
        a->group - split * a->item_heads < a->item_heads ? a->group - split * a->item_heads : a->item_heads;
    x.first_token = seq->first_token + block * a->item_tokens;
    x.n_tokens = seq->n_tokens - block * a->item_tokens < a->item_tokens
                     ? seq->n_tokens - block * a->item_tokens
                     : a->item_tokens;
    return x;
}

/* ---- phase 0 ---- */

/* Rotated queries, scaled unless a soft cap has to come after the dot product. */
static void load_queries(const kv_node *n, const piece *x, const rows *r) {
    const kv_attend_params *p = params_of(n);
    int32_t dim = p->store->k_head.dim;
    float scale = p->softcap > 0 ? 1 : p->scale;
    for (int32_t t = 0; t < x->n_tokens; t++) {
        int32_t token = x->first_token + t;
        const float *row =
            (const float *)kv_tensor_row(n->in[0], token) + (size_t)x->first_head * (size_t)dim;
        for (int32_t h = 0; h < x->n_heads; h++) {
            float *q = r->q + (size_t)(t * x->n_heads + h) * (size_t)dim;
            for (int32_t d = 0; d < dim; d++) q[d] = row[h * dim + d] * scale;
            if (p->rope->n_rot) kv_rope_rotate(q, p->rope, kv_tensor_row(n->in[1], token));
        }
    }
}

static const float *turn_queries(const kv_node *n, const rows *r, int32_t n_rows, int32_t turn) {
    const kv_attend_params *p = params_of(n);
    if (turn < 0 || !p->rope->n_rot) return r->q;
    size_t dim = (size_t)p->store->k_head.dim;
    memcpy(r->turned, r->q, (size_t)n_rows * dim * sizeof *r->q);
    for (int32_t i = 0; i < n_rows; i++)
        kv_rope_rotate(r->turned + (size_t)i * dim, p->rope, kv_tensor_row(n->in[1], turn));
    return r->turned;
}

/* Largest of n floats, n a multiple of 16; in lanes, so that the compiler can use vectors. */
static float largest(const float *s, int32_t n) {
    float lane[16];
    memcpy(lane, s, sizeof lane);
    for (int32_t i = 16; i < n; i += 16)
        for (int k = 0; k < 16; k++) lane[k] = s[i + k] > lane[k] ? s[i + k] : lane[k];
    float max = lane[0];
    for (int k = 1; k < 16; k++) max = lane[k] > max ? lane[k] : max;
    return max;
}

/* Cells outside [first, first + n) get -inf: their probability is exactly 0. */
static void mask(float *s, int32_t first, int32_t n) {
    for (int32_t c = 0; c < first; c++) s[c] = -INFINITY;
    for (int32_t c = first + n; c < BLOCK_CELLS; c++) s[c] = -INFINITY;
}

/* Scores of one row to probabilities relative to the row's running maximum. */
static void soften(const attend_impl *a, const rows *r, int32_t i, int32_t width, int32_t v_dim) {
    float *s = r->s + (size_t)i * BLOCK_CELLS, *o = r->o + (size_t)i * (size_t)v_dim;
    float max = largest(s, width);
    if (max == -INFINITY) { /* nothing visible: exp(-inf - -inf) would be NaN */
        memset(s, 0, (size_t)width * sizeof *s);
        return;
    }
    if (max > r->max[i]) {
        float shrink = expf(r->max[i] - max);
        for (int32_t d = 0; d < v_dim; d++) o[d] *= shrink;
        r->weight[i] *= shrink;
        r->max[i] = max;
    }
    r->weight[i] += a->exp_sum(s, width, r->max[i]);
}

/* Cells [begin, begin + n) of a run, n <= BLOCK_CELLS. */
static void attend_block(const kv_node *n, const piece *x, const rows *r, const float *q, const kv_run *run,
                         int32_t begin, int32_t n_cells) {
    const attend_impl *a = n->impl;
    const kv_attend_params *p = params_of(n);
    const kv_store *s = p->store;
    int32_t n_rows = x->n_tokens * x->n_heads, width = (n_cells + 15) / 16 * 16;
    int64_t cell = run->first_cell + begin;
    const uint8_t *k = kv_tensor_row(&s->k, cell), *v = kv_tensor_row(&s->v, cell);
    a->score(&(kv_score_args){.s = r->s,
                              .s_step = BLOCK_CELLS,
                              .q = q,
                              .n_q = n_rows,
                              .head_dim = s->k_head.dim,
                              .k = k + kv_dtype_bytes(s->k.dtype, x->kv_head * s->k_head.dim),
                              .k_bytes = kv_dtype_bytes(s->k.dtype, s->k.cols),
                              .n_cells = n_cells,
                              .dtype = s->k.dtype});
    kv_run part = {.pos = run->pos + begin, .n_cells = n_cells};
    for (int32_t i = 0; i < n_rows; i++) {
        float *row = r->s + (size_t)i * BLOCK_CELLS;
        for (int32_t c = 0; p->softcap > 0 && c < n_cells; c++)
            row[c] = p->softcap * tanhf(row[c] * p->scale / p->softcap);
        int32_t first,
            seen = kv_run_visible(&part, p->batch->pos[x->first_token + i / x->n_heads], p->window, &first);
        mask(row, seen ? first : BLOCK_CELLS, seen);
        soften(a, r, i, width, s->v_head.dim);
    }
    a->accumulate(&(kv_accumulate_args){.o = r->o,
                                        .p = r->s,
                                        .p_step = BLOCK_CELLS,
                                        .n_q = n_rows,
                                        .head_dim = s->v_head.dim,
                                        .v = v + kv_dtype_bytes(s->v.dtype, x->kv_head * s->v_head.dim),
                                        .v_bytes = kv_dtype_bytes(s->v.dtype, s->v.cols),
                                        .n_cells = n_cells,
                                        .dtype = s->v.dtype});
}

/* What the item's tokens together can see of a run: from the first token's window to the last token's
 * position. */
static void visible_range(const kv_attend_params *p, const piece *x, const kv_run *run, int64_t *begin,
                          int64_t *end) {
    int64_t first_pos = p->batch->pos[x->first_token],
            last_pos = p->batch->pos[x->first_token + x->n_tokens - 1];
    *begin = p->window && first_pos - p->window + 1 > run->pos ? first_pos - p->window + 1 - run->pos : 0;
    *end = last_pos + 1 - run->pos < run->n_cells ? last_pos + 1 - run->pos : run->n_cells;
}

static void attend_part(const kv_node *n, const piece *x, const rows *r) {
    const kv_attend_params *p = params_of(n);
    size_t cells = (size_t)x->seq->n_cells, n_parts = (size_t)x->n_parts;
    int64_t per_part = (int64_t)kv_round_up((cells + n_parts - 1) / n_parts, BLOCK_CELLS);
    int64_t from = x->part * per_part, at = 0; /* both count the sequence's cells */
    for (int32_t i = 0; i < x->seq->n_runs; i++) {
        const kv_run *run = &p->batch->runs[x->seq->first_run + i];
        int64_t begin, end;
        visible_range(p, x, run, &begin, &end);
        if (from - at > begin) begin = from - at;
        if (from + per_part - at < end) end = from + per_part - at;
        const float *q = begin < end ? turn_queries(n, r, x->n_tokens * x->n_heads, run->turn) : NULL;
        for (int64_t c = begin; c < end; c += BLOCK_CELLS)
            attend_block(n, x, r, q, run, (int32_t)c,
                         (int32_t)(end - c < BLOCK_CELLS ? end - c : BLOCK_CELLS));
        at += run->n_cells;
    }
}

static kv_status run_piece(const kv_node *n, int64_t item, void *work) {
    const kv_store *s = params_of(n)->store;
    piece x = piece_of(n, item);
    rows r = rows_at(work, s);
    int32_t n_rows = x.n_tokens * x.n_heads;
    load_queries(n, &x, &r);
    memset(r.o, 0, (size_t)n_rows * (size_t)s->v_head.dim * sizeof *r.o);
    for (int32_t i = 0; i < n_rows; i++) r.max[i] = -INFINITY, r.weight[i] = 0;
    attend_part(n, &x, &r);
    for (int32_t i = 0; i < n_rows; i++) {
        float *part = part_at(n, x.first_token + i / x.n_heads, x.first_head + i % x.n_heads, x.part);
        memcpy(part, r.o + (size_t)i * (size_t)s->v_head.dim, (size_t)s->v_head.dim * sizeof *part);
        part[s->v_head.dim] = r.max[i];
        part[s->v_head.dim + 1] = r.weight[i];
    }
    return KVANT_OK;
}

/* ---- phase 1 ---- */

static void merge_head(const kv_node *n, int64_t token, int32_t head, int32_t n_parts, float *out) {
    int32_t dim = params_of(n)->store->v_head.dim;
    float max = -INFINITY, weight = 0;
    for (int32_t i = 0; i < n_parts; i++) max = fmaxf(max, part_at(n, token, head, i)[dim]);
    memset(out, 0, (size_t)dim * sizeof *out);
    for (int32_t i = 0; i < n_parts; i++) {
        const float *part = part_at(n, token, head, i);
        if (part[dim] == -INFINITY) continue;
        float share = expf(part[dim] - max);
        weight += share * part[dim + 1];
        for (int32_t d = 0; d < dim; d++) out[d] += share * part[d];
    }
    float inverse = 1 / weight;
    for (int32_t d = 0; d < dim; d++) out[d] *= inverse;
}

static kv_status merge_token(const kv_node *n, int64_t token, void *work) {
    const attend_impl *a = n->impl;
    const kv_attend_params *p = params_of(n);
    const kv_seq_view *seq = p->batch->seqs;
    while (token >= seq->first_token + seq->n_tokens) seq++;
    float *row = work;
    for (int32_t h = 0; h < p->n_heads; h++)
        merge_head(n, token, h, parts_of(a, seq), row + (size_t)h * (size_t)p->store->v_head.dim);
    a->encode(kv_tensor_row(n->out, token), row, n->out->cols);
    return KVANT_OK;
}

static kv_status attend_run(const kv_node *n, int32_t phase, int64_t item, void *work) {
    return phase == 0 ? run_piece(n, item, work) : merge_token(n, item, work);
}

const kv_cpu_op kv_cpu_attend = {.op = &kv_op_attend,
                                 .n_phases = 2,
                                 .accepts = attend_accepts,
                                 .prepare = attend_prepare,
                                 .n_items = attend_items,
                                 .run = attend_run};
