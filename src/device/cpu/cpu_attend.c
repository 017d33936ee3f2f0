/* cpu_attend.c: driver of attend. Phase 0: an item is the query rows of one or more KV heads, for some tokens
 * of one sequence, against a part of the sequence's cells; it leaves sums, maximum and weight in the node's
 * workspace. Phase 1: an item is a token; parts are merged in order and the row is coded. The split depends
 * on the batch alone, never on the number of threads.
 *
 *     shared: for each token, head, part:  [o: width of a V head, floats][max][weight]
 */
#include "device/cpu/cpu_attend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FEW_TOKENS = 32, /* up to here sequences are split into parts */
    MAX_PARTS = 16,
    MIN_PART_CELLS = 512,
    WISHED_ITEMS = 8, /* heads share an item only where so many are left: their cells lie side by side */
    NAME_BYTES = 160,
};

typedef struct attend_impl {
    kv_cpu_impl head;
    kv_attend_kernels kernels;
    kv_encode_fn *encode;
    int32_t group;       /* query heads per KV head */
    int32_t item_heads;  /* of them in an item */
    int32_t splits;      /* items that a group is cut into */
    int32_t item_tokens; /* of an item */
    int32_t max_parts, max_kv_heads;
    size_t rows_at; /* in the workspace: the rows of each KV head; behind them what they point to */
} attend_impl;

/* One item of phase 0. */
typedef struct piece {
    const kv_seq_view *seq;
    int32_t kv_head, n_kv_heads;
    int32_t first_head, n_heads; /* query heads of the first KV head */
    int32_t first_token, n_tokens;
    int32_t part, n_parts;
} piece;

static const kv_attend_params *params_of(const kv_node *n) { return n->params; }

/* ---- how a sequence is cut ---- */

static int32_t parts_of(const attend_impl *a, const kv_seq_view *seq) {
    int64_t parts = seq->n_cells / MIN_PART_CELLS;
    return (int32_t)(parts < 1 ? 1 : parts > a->max_parts ? a->max_parts : parts);
}

/* KV heads of an item. */
static int32_t heads_together(const attend_impl *a, const kv_attend_params *p, const kv_seq_view *seq) {
    int32_t heads = p->store->n_kv_heads * parts_of(a, seq) / WISHED_ITEMS;
    return heads < 1 ? 1 : heads > a->max_kv_heads ? a->max_kv_heads : heads;
}

static int32_t div_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

static int32_t token_blocks(const attend_impl *a, const kv_seq_view *seq) {
    return div_up(seq->n_tokens, a->item_tokens);
}

static int32_t head_blocks(const attend_impl *a, const kv_attend_params *p, const kv_seq_view *seq) {
    return div_up(p->store->n_kv_heads, heads_together(a, p, seq));
}

static int64_t pieces_of(const attend_impl *a, const kv_attend_params *p, const kv_seq_view *seq) {
    return (int64_t)token_blocks(a, seq) * head_blocks(a, p, seq) * a->splits * parts_of(a, seq);
}

static int64_t attend_items(const kv_node *n, int32_t phase) {
    const kv_batch_view *batch = params_of(n)->batch;
    if (phase == 1) return batch->n_tokens;
    int64_t items = 0;
    for (int32_t i = 0; i < batch->n_seqs; i++) items += pieces_of(n->impl, params_of(n), &batch->seqs[i]);
    return items;
}

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

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
    x.n_kv_heads = heads_together(a, p, seq);
    x.kv_head = (int32_t)(item % head_blocks(a, p, seq)) * x.n_kv_heads;
    int32_t block = token_blocks(a, seq) - 1 - (int32_t)(item / head_blocks(a, p, seq));
    x.n_kv_heads = least(x.n_kv_heads, p->store->n_kv_heads - x.kv_head);
    x.first_head = x.kv_head * a->group + split * a->item_heads;
    x.n_heads = least(a->group - split * a->item_heads, a->item_heads);
    x.first_token = seq->first_token + block * a->item_tokens;
    x.n_tokens = least(seq->n_tokens - block * a->item_tokens, a->item_tokens);
    return x;
}

/* ---- preparing ---- */

static size_t part_floats(const kv_store *s) { return (size_t)s->v_head.width + 2; }

static float *part_at(const kv_node *n, int64_t token, int32_t head, int32_t part) {
    const attend_impl *a = n->impl;
    size_t index =
        ((size_t)token * (size_t)params_of(n)->n_heads + (size_t)head) * (size_t)a->max_parts + (size_t)part;
    return (float *)a->head.shared + index * part_floats(params_of(n)->store);
}

static bool attend_accepts(const kv_node *n, unsigned cpu) {
    (void)cpu;
    return n->in[0]->dtype == KV_FLOAT;
}

static void set_split(attend_impl *a, const kv_node *n) {
    const kv_attend_params *p = params_of(n);
    bool few = n->out->rows <= FEW_TOKENS;
    a->group = p->n_heads / p->store->n_kv_heads;
    a->item_heads = least(a->group, KV_HEAD_ROWS);
    a->splits = div_up(a->group, a->item_heads);
    a->item_tokens = KV_HEAD_ROWS / a->item_heads;
    a->max_parts = few ? MAX_PARTS : 1;
    a->max_kv_heads = few && a->splits == 1 ? p->store->n_kv_heads : 1;
}

/* Rows that meet a KV head in one item. */
static int32_t item_rows(const attend_impl *a, const kv_node *n) {
    return least((int32_t)n->out->rows, a->item_tokens) * a->item_heads;
}

static kv_status attend_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    const kv_attend_params *p = params_of(n);
    attend_impl *a = n->impl = kv_arena_alloc(arena, 1, sizeof *a);
    char *name = kv_arena_alloc(arena, 1, NAME_BYTES);
    if (!a || !name) return KVANT_NO_MEMORY;
    kv_attend_describe(name, NAME_BYTES, p, cpu);
    a->head.kernel = name;
    a->encode = kv_cpu_encoder(n->out->dtype, cpu);
    kv_attend_resolve(&a->kernels, p, cpu);
    set_split(a, n);
    a->rows_at = kv_round_up((size_t)a->max_kv_heads * sizeof(kv_attend_rows), 64);
    size_t work = a->rows_at + kv_attend_work_bytes(p, &a->kernels, a->max_kv_heads, item_rows(a, n));
    size_t out_row = (size_t)n->out->cols * sizeof(float) + (size_t)p->store->v_head.width * sizeof(float);
    a->head.work_bytes = work > out_row ? work : out_row;
    a->head.shared_bytes = (size_t)n->out->rows * (size_t)p->n_heads * (size_t)a->max_parts *
                           part_floats(p->store) * sizeof(float);
    return KVANT_OK;
}

/* ---- phase 0 ---- */

/* What the item's tokens together can see of a run: from the first token's window to the last token's
 * position. */
static void visible_range(const kv_attend_params *p, const piece *x, const kv_run *run, int64_t *begin,
                          int64_t *end) {
    int64_t first_pos = p->batch->pos[x->first_token],
            last_pos = p->batch->pos[x->first_token + x->n_tokens - 1];
    *begin = p->window && first_pos - p->window + 1 > run->pos ? first_pos - p->window + 1 - run->pos : 0;
    *end = last_pos + 1 - run->pos < run->n_cells ? last_pos + 1 - run->pos : run->n_cells;
}

/* Cells [begin, end) of a run, page by page, every head of a page before the next. */
static void attend_cells(const kv_node *n, const piece *x, const kv_attend_rows *rows,
                         const kv_attend_scratch *scratch, const kv_run *run, int64_t begin, int64_t end) {
    const attend_impl *a = n->impl;
    for (int32_t h = 0; h < x->n_kv_heads; h++) kv_attend_turn(n, &a->kernels, &rows[h], run, begin);
    while (begin < end) {
        int64_t stop = begin + KV_BLOCK_CELLS - (run->first_cell + begin) % KV_BLOCK_CELLS;
        if (stop > end) stop = end;
        if (stop < end) kv_attend_fetch(params_of(n), run->first_cell + stop, x->kv_head, x->n_kv_heads);
        for (int32_t h = 0; h < x->n_kv_heads; h++)
            kv_attend_block(n, &a->kernels, &rows[h], scratch, run, begin, stop);
        begin = stop;
    }
}

static void attend_part(const kv_node *n, const piece *x, const kv_attend_rows *rows,
                        const kv_attend_scratch *scratch) {
    const kv_attend_params *p = params_of(n);
    size_t cells = (size_t)x->seq->n_cells, n_parts = (size_t)x->n_parts;
    int64_t per_part = (int64_t)kv_round_up((cells + n_parts - 1) / n_parts, KV_BLOCK_CELLS);
    int64_t from = x->part * per_part, at = 0; /* both count the sequence's cells */
    for (int32_t i = 0; i < x->seq->n_runs; i++) {
        const kv_run *run = &p->batch->runs[x->seq->first_run + i];
        int64_t begin, end;
        visible_range(p, x, run, &begin, &end);
        if (from - at > begin) begin = from - at;
        if (from + per_part - at < end) end = from + per_part - at;
        if (begin < end) attend_cells(n, x, rows, scratch, run, begin, end);
        at += run->n_cells;
    }
}

static void keep_part(const kv_node *n, const piece *x, const kv_attend_rows *r) {
    size_t width = (size_t)params_of(n)->store->v_head.width;
    for (int32_t i = 0; i < r->n_tokens * r->n_heads; i++) {
        float *part = part_at(n, r->first_token + i / r->n_heads, r->first_head + i % r->n_heads, x->part);
        memcpy(part, r->o + (size_t)i * width, width * sizeof *part);
        part[width] = r->max[i];
        part[width + 1] = r->weight[i];
    }
}

static kv_status run_piece(const kv_node *n, int64_t item, void *work) {
    const attend_impl *a = n->impl;
    piece x = piece_of(n, item);
    kv_attend_rows *rows = work;
    kv_attend_scratch scratch;
    kv_attend_bind(rows, &scratch, (uint8_t *)work + a->rows_at, params_of(n), &a->kernels, x.n_kv_heads,
                   item_rows(a, n));
    for (int32_t h = 0; h < x.n_kv_heads; h++) {
        rows[h].kv_head = x.kv_head + h;
        rows[h].first_head = x.first_head + h * a->group;
        rows[h].n_heads = x.n_heads;
        rows[h].first_token = x.first_token;
        rows[h].n_tokens = x.n_tokens;
        kv_attend_load(n, &rows[h]);
    }
    attend_part(n, &x, rows, &scratch);
    for (int32_t h = 0; h < x.n_kv_heads; h++) keep_part(n, &x, &rows[h]);
    return KVANT_OK;
}

/* ---- phase 1 ---- */

/* The mean of a head's values as they are stored. */
static void merge_head(const kv_node *n, int64_t token, int32_t head, int32_t n_parts, float *out) {
    int32_t width = params_of(n)->store->v_head.width;
    float max = -INFINITY, weight = 0;
    for (int32_t i = 0; i < n_parts; i++) max = fmaxf(max, part_at(n, token, head, i)[width]);
    memset(out, 0, (size_t)width * sizeof *out);
    for (int32_t i = 0; i < n_parts; i++) {
        const float *part = part_at(n, token, head, i);
        if (part[width] == -INFINITY) continue;
        float share = expf(part[width] - max);
        weight += share * part[width + 1];
        for (int32_t d = 0; d < width; d++) out[d] += share * part[d];
    }
    float inverse = 1 / weight;
    for (int32_t d = 0; d < width; d++) out[d] *= inverse;
}

static kv_status merge_token(const kv_node *n, int64_t token, void *work) {
    const attend_impl *a = n->impl;
    const kv_attend_params *p = params_of(n);
    const kv_head_code *head = &p->store->v_head;
    const kv_seq_view *seq = p->batch->seqs;
    while (token >= seq->first_token + seq->n_tokens) seq++;
    float *row = work, *stored = row + n->out->cols;
    for (int32_t h = 0; h < p->n_heads; h++) {
        merge_head(n, token, h, parts_of(a, seq), stored);
        kv_heads_restore(row + (size_t)h * (size_t)head->dim, stored, 1, head);
    }
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
