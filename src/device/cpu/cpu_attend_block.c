/* cpu_attend_block.c: the query rows of one KV head against the cells of one page, with a running softmax
 * (Milakov and Gimelshein 2018). Everything is indexed by a cell's place in its page, so that tiles, the
 * centre's table and masks agree whatever cells a run begins and ends with. */
#include "device/cpu/cpu_attend.h"
#include "op/hadamard.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const kv_attend_params *params_of(const kv_node *n) { return n->params; }

static int32_t rows_of(const kv_attend_rows *r) { return r->n_tokens * r->n_heads; }

/* ---- kernels ---- */

/* Whether blocks of a page are whole tiles. */
static bool tiles_fit(const kv_layout *l) { return KV_BLOCK_CELLS % l->tile == 0; }

static const kv_kernel *pick_tiles(const kv_attend_params *p, unsigned cpu) {
    const kv_tensor *k = &p->store->k;
    const kv_kernel *fast = NULL;
    if (k->layout->tile != KV_TILE_ROWS) return NULL;
    if (p->act) fast = kv_kernel_pick(KV_ROLE_matmul, k->dtype, p->act, k->layout, cpu);
    return fast ? fast : kv_kernel_pick(KV_ROLE_matmul, k->dtype, KV_FLOAT, k->layout, cpu);
}

/* Kernels that serve any dtype are for floats: cells of another are quicker decoded first. */
static const kv_kernel *pick(kv_role role, const kv_tensor *t, const kv_dtype *act, unsigned cpu) {
    if (!tiles_fit(t->layout)) return NULL;
    const kv_kernel *k = kv_kernel_pick(role, t->dtype, act ? act : KV_FLOAT, t->layout, cpu);
    return k && (k->a || t->dtype == KV_FLOAT) ? k : NULL;
}

static const kv_kernel *pick_plain(kv_role role, unsigned cpu) {
    return kv_kernel_pick(role, KV_FLOAT, KV_FLOAT, &kv_layout_rows, cpu);
}

void kv_attend_resolve(kv_attend_kernels *k, const kv_attend_params *p, unsigned cpu) {
    const kv_store *s = p->store;
    const kv_kernel *tiles = pick_tiles(p, cpu), *score = pick(KV_ROLE_score, &s->k, p->act, cpu);
    const kv_kernel *accumulate = pick(KV_ROLE_accumulate, &s->v, p->act, cpu);
    *k = (kv_attend_kernels){.exp_sum = kv_kernel_pick(KV_ROLE_exp_sum, NULL, NULL, NULL, cpu)->exp_sum,
                             .panel = kv_kernel_pick(KV_ROLE_panel, NULL, NULL, NULL, cpu)->panel};
    if (tiles) {
        k->tiles = tiles->matmul;
        k->query = tiles->b;
        k->encode_query = kv_cpu_encoder(tiles->b, cpu);
    } else if (score) {
        k->score = score->score;
    } else {
        k->score = pick_plain(KV_ROLE_score, cpu)->score;
        k->decode_k = kv_cpu_decoder(s->k.dtype, cpu);
    }
    if (accumulate) {
        k->accumulate = accumulate->accumulate;
    } else {
        k->accumulate = pick_plain(KV_ROLE_accumulate, cpu)->accumulate;
        k->decode_v = kv_cpu_decoder(s->v.dtype, cpu);
    }
}

void kv_attend_describe(char *text, size_t capacity, const kv_attend_params *p, unsigned cpu) {
    const kv_store *s = p->store;
    const kv_kernel *k = pick_tiles(p, cpu), *v = pick(KV_ROLE_accumulate, &s->v, p->act, cpu);
    const char *decoded_k = "", *decoded_v = "";
    if (!k) k = pick(KV_ROLE_score, &s->k, p->act, cpu);
    if (!k) k = pick_plain(KV_ROLE_score, cpu), decoded_k = "decode, ";
    if (!v) v = pick_plain(KV_ROLE_accumulate, cpu), decoded_v = "decode, ";
    snprintf(text, capacity, "%s%s + %s%s", decoded_k, k->name, decoded_v, v->name);
}

/* ---- workspace ---- */

static int32_t n_pairs(const kv_attend_params *p) { return p->store->centre ? p->store->centre->n_pairs : 0; }

/* Hands out pieces of a workspace, each aligned to 64; counts where there is none. */
typedef struct carver {
    uint8_t *base;
    size_t at;
} carver;

static void *carve(carver *c, size_t bytes) {
    void *p = c->base ? c->base + c->at : NULL;
    c->at += kv_round_up(bytes, 64);
    return p;
}

static void *carve_floats(carver *c, int32_t rows, int32_t cols) {
    return carve(c, (size_t)rows * (size_t)cols * sizeof(float));
}

static void carve_head(kv_attend_rows *r, carver *c, const kv_attend_params *p, const kv_attend_kernels *k,
                       int32_t n_rows) {
    const kv_store *s = p->store;
    r->rotated = carve_floats(c, n_rows, s->k_head.dim);
    r->turned = carve_floats(c, n_rows, s->k_head.dim);
    r->shaped = carve_floats(c, n_rows, s->k_head.width);
    r->coded = carve(c, k->tiles ? (size_t)n_rows * kv_dtype_bytes(k->query, s->k_head.width) : 0);
    r->s = carve_floats(c, n_rows, KV_SCORE_STEP);
    r->o = carve_floats(c, n_rows, s->v_head.width);
    r->max = carve_floats(c, n_rows, 1);
    r->weight = carve_floats(c, n_rows, 1);
    r->origin = carve(c, 4 * (size_t)n_pairs(p) * sizeof(double));
    r->centre = carve_floats(c, n_rows, 2 * n_pairs(p));
}

static void carve_scratch(kv_attend_scratch *x, carver *c, const kv_attend_params *p,
                          const kv_attend_kernels *k) {
    const kv_store *s = p->store;
    int32_t width = k->decode_k ? s->k_head.width : 0;
    if (k->decode_v && s->v_head.width > width) width = s->v_head.width;
    x->decoded = carve_floats(c, KV_BLOCK_CELLS, width);
    x->plain =
        carve(c, kv_dtype_bytes(s->k.dtype, s->k_head.width) + kv_dtype_bytes(s->v.dtype, s->v_head.width));
}

size_t kv_attend_work_bytes(const kv_attend_params *p, const kv_attend_kernels *k, int32_t n_heads,
                            int32_t n_rows) {
    carver c = {0};
    kv_attend_rows rows;
    kv_attend_scratch scratch;
    carve_scratch(&scratch, &c, p, k);
    for (int32_t i = 0; i < n_heads; i++) carve_head(&rows, &c, p, k, n_rows);
    return c.at;
}

void kv_attend_bind(kv_attend_rows *rows, kv_attend_scratch *scratch, void *work, const kv_attend_params *p,
                    const kv_attend_kernels *k, int32_t n_heads, int32_t n_rows) {
    carver c = {.base = work};
    carve_scratch(scratch, &c, p, k);
    for (int32_t i = 0; i < n_heads; i++) carve_head(&rows[i], &c, p, k, n_rows);
}

/* ---- queries ---- */

void kv_attend_load(const kv_node *n, const kv_attend_rows *r) {
    const kv_attend_params *p = params_of(n);
    int32_t dim = p->store->k_head.dim, n_rows = rows_of(r);
    float scale = p->softcap > 0 ? 1 : p->scale;
    for (int32_t i = 0; i < n_rows; i++) {
        int32_t token = r->first_token + i / r->n_heads, head = r->first_head + i % r->n_heads;
        const float *from = (const float *)kv_tensor_row(n->in[0], token) + (size_t)head * (size_t)dim;
        float *q = r->rotated + (size_t)i * (size_t)dim;
        for (int32_t d = 0; d < dim; d++) q[d] = from[d] * scale;
        if (p->rope->n_rot) kv_rope_rotate(q, p->rope, kv_tensor_row(n->in[1], token));
        r->max[i] = -INFINITY;
        r->weight[i] = 0;
    }
    memset(r->o, 0, (size_t)n_rows * (size_t)p->store->v_head.width * sizeof *r->o);
}

/* The position that cell 0 of a page would have been rotated by, as angles of the centre's pairs. */
static void set_origin(const kv_attend_params *p, const kv_attend_rows *r, const kv_run *run, int64_t begin) {
    const kv_centre *c = p->store->centre;
    int64_t cell = run->first_cell + begin, origin = run->stored + begin - cell % KV_BLOCK_CELLS;
    for (int32_t i = 0; i < c->n_pairs; i++) {
        double frequency = p->rope->freq[c->pairs[r->kv_head * c->n_pairs + i]], *at = r->origin + 4 * i;
        at[0] = cos((double)origin * frequency);
        at[1] = sin((double)origin * frequency);
        at[2] = cos(KV_BLOCK_CELLS * frequency);
        at[3] = sin(KV_BLOCK_CELLS * frequency);
    }
}

/* On to the next page: angles add up. */
static void advance_origin(const kv_attend_params *p, const kv_attend_rows *r) {
    for (int32_t i = 0; i < n_pairs(p); i++) {
        double *at = r->origin + 4 * i, x = at[0], y = at[1];
        at[0] = x * at[2] - y * at[3];
        at[1] = y * at[2] + x * at[3];
    }
}

void kv_attend_turn(const kv_node *n, const kv_attend_kernels *k, const kv_attend_rows *r, const kv_run *run,
                    int64_t begin) {
    const kv_attend_params *p = params_of(n);
    const kv_head_code *head = &p->store->k_head;
    int32_t n_rows = rows_of(r);
    memcpy(r->turned, r->rotated, (size_t)n_rows * (size_t)head->dim * sizeof *r->turned);
    for (int32_t i = 0; run->turn >= 0 && p->rope->n_rot && i < n_rows; i++)
        kv_rope_rotate(r->turned + (size_t)i * (size_t)head->dim, p->rope,
                       kv_tensor_row(n->in[1], run->turn));
    kv_heads_store(r->shaped, r->turned, n_rows, head);
    if (k->tiles) k->encode_query(r->coded, r->shaped, (int64_t)n_rows * head->width);
    if (p->store->centre) set_origin(p, r, run, begin);
}

/* ---- scores ---- */

/* A head's part of cell `cell`, whose tile it begins where cells lie in tiles. */
static const uint8_t *head_at(const kv_tensor *t, int64_t cell, int32_t head, int32_t width) {
    return (const uint8_t *)kv_tensor_data(t) +
           (size_t)(cell / t->layout->tile) * kv_layout_tile_bytes(t->layout, t->dtype, t->cols) +
           kv_dtype_bytes(t->dtype, (int64_t)head * width) * (size_t)t->layout->tile;
}

/* A head of n cells as rows of floats. */
static void decode_cells(const kv_attend_scratch *x, kv_decode_fn *decode, const kv_tensor *t, int64_t cell,
                         int32_t n, int32_t head, int32_t width) {
    int64_t blocks = width / t->dtype->block_elems;
    for (int32_t i = 0; i < n; i++) {
        kv_layout_unpack_blocks(t->layout, t->dtype, t->cols, x->plain, kv_tensor_data(t), cell + i,
                                head * blocks, blocks);
        decode(x->decoded + (size_t)i * (size_t)width, x->plain, width);
    }
}

/* Which cells of a page a block reads: [first, end) are wanted, [low, high) are whole tiles of t. */
typedef struct span {
    int32_t first, end, low, high;
} span;

static span span_in(const kv_tensor *t, int32_t first, int32_t end) {
    int32_t tile = t->layout->tile;
    return (span){first, end, first / tile * tile, (end + tile - 1) / tile * tile};
}

static void score_cells(const kv_attend_params *p, const kv_attend_kernels *k, const kv_attend_rows *r,
                        const kv_attend_scratch *x, int64_t page, int32_t first, int32_t end) {
    const kv_tensor *t = &p->store->k;
    int32_t width = p->store->k_head.width;
    kv_score_args a = {
        .s_step = KV_SCORE_STEP, .q = r->shaped, .n_q = rows_of(r), .head_dim = width, .dtype = t->dtype};
    if (k->decode_k) {
        decode_cells(x, k->decode_k, t, page + first, end - first, r->kv_head, width);
        a.s = r->s + first;
        a.k = x->decoded;
        a.k_bytes = (size_t)width * sizeof(float);
        a.n_cells = end - first;
        a.dtype = KV_FLOAT;
    } else {
        span c = span_in(t, first, end);
        a.s = r->s + c.low;
        a.k = head_at(t, page + c.low, r->kv_head, width);
        a.k_bytes = kv_layout_tile_bytes(t->layout, t->dtype, t->cols);
        a.n_cells = c.high - c.low;
    }
    k->score(&a);
}

static void score_tiles(const kv_attend_params *p, const kv_attend_kernels *k, const kv_attend_rows *r,
                        int64_t page, int32_t first, int32_t end) {
    const kv_tensor *t = &p->store->k;
    int32_t width = p->store->k_head.width;
    span c = span_in(t, first, end);
    k->tiles(&(kv_matmul_args){.w = head_at(t, page + c.low, r->kv_head, width),
                               .tile_bytes = kv_layout_tile_bytes(t->layout, t->dtype, t->cols),
                               .n_tiles = (c.high - c.low) / KV_TILE_ROWS,
                               .cols = width,
                               .x = r->coded,
                               .x_bytes = kv_dtype_bytes(k->query, width),
                               .n_x = rows_of(r),
                               .y = r->s + c.low,
                               .y_step = KV_SCORE_STEP});
}

/* Adds the centre's share to the scores of all cells of tiles that hold [first, end). */
static void add_centre(const kv_attend_params *p, const kv_attend_kernels *k, const kv_attend_rows *r,
                       int32_t first, int32_t end) {
    const kv_centre *c = p->store->centre;
    const int32_t *pairs = c->pairs + r->kv_head * c->n_pairs;
    int32_t n_rows = rows_of(r), cols = 2 * c->n_pairs;
    for (int32_t i = 0; i < n_rows; i++) {
        const float *q = r->turned + (size_t)i * (size_t)p->store->k_head.dim;
        float *out = r->centre + (size_t)i * (size_t)cols;
        for (int32_t j = 0; j < c->n_pairs; j++) {
            float x = q[kv_rope_first(p->rope, pairs[j])], y = q[kv_rope_second(p->rope, pairs[j])];
            float cosine = (float)r->origin[4 * j], sine = (float)r->origin[4 * j + 1];
            out[2 * j] = x * cosine + y * sine;
            out[2 * j + 1] = y * cosine - x * sine;
        }
    }
    size_t tile_floats = (size_t)cols * KV_CENTRE_LANES;
    const float *table = c->table + kv_centre_table_floats(r->kv_head, c->n_pairs);
    for (int32_t tile = first / KV_CENTRE_LANES; tile * KV_CENTRE_LANES < end; tile++)
        k->panel(&(kv_panel_args){.w = table + (size_t)tile * tile_floats,
                                  .cols = cols,
                                  .x = r->centre,
                                  .x_step = (size_t)cols,
                                  .n_x = n_rows,
                                  .y = r->s + tile * KV_CENTRE_LANES,
                                  .y_step = KV_SCORE_STEP});
}

/* ---- probabilities ---- */

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

/* Scores of row i, of which the query sees cells [first, end) of [low, high), to probabilities relative to
 * the row's running maximum. What is not seen becomes exactly 0. */
static void soften(const kv_attend_kernels *k, const kv_attend_rows *r, int32_t i, span seen, int32_t width) {
    float *s = r->s + (size_t)i * KV_SCORE_STEP, *o = r->o + (size_t)i * (size_t)width;
    for (int32_t c = seen.low; c < seen.first; c++) s[c] = -INFINITY;
    for (int32_t c = seen.end; c < seen.high; c++) s[c] = -INFINITY;
    float max = seen.first < seen.end ? largest(s + seen.low, seen.high - seen.low) : -INFINITY;
    if (max == -INFINITY) { /* nothing visible: exp(-inf - -inf) would be NaN */
        memset(s + seen.low, 0, (size_t)(seen.high - seen.low) * sizeof *s);
        return;
    }
    if (max > r->max[i]) {
        float shrink = expf(r->max[i] - max);
        for (int32_t d = 0; d < width; d++) o[d] *= shrink;
        r->weight[i] *= shrink;
        r->max[i] = max;
    }
    r->weight[i] += k->exp_sum(s + seen.low, seen.high - seen.low, r->max[i]);
}

/* Cells [first, end) of the page, the first at position `pos`. */
static void soften_rows(const kv_attend_params *p, const kv_attend_kernels *k, const kv_attend_rows *r,
                        int32_t first, int32_t end, int64_t pos) {
    const kv_run part = {.pos = pos, .n_cells = end - first};
    const int32_t n_rows = rows_of(r), tile = p->store->v.layout->tile > 16 ? p->store->v.layout->tile : 16;
    const int32_t low = first / tile * tile, high = (end + tile - 1) / tile * tile;
    for (int32_t i = 0; i < n_rows; i++) {
        float *row = r->s + (size_t)i * KV_SCORE_STEP;
        for (int32_t c = first; p->softcap > 0 && c < end; c++)
            row[c] = p->softcap * tanhf(row[c] * p->scale / p->softcap);
        int32_t skipped,
            seen = kv_run_visible(&part, p->batch->pos[r->first_token + i / r->n_heads], p->window, &skipped);
        int32_t from = seen ? first + skipped : high;
        soften(k, r, i, (span){from, seen ? from + seen : high, low, high}, p->store->v_head.width);
    }
}

/* ---- values ---- */

static void accumulate_cells(const kv_attend_params *p, const kv_attend_kernels *k, const kv_attend_rows *r,
                             const kv_attend_scratch *x, int64_t page, int32_t first, int32_t end) {
    const kv_tensor *t = &p->store->v;
    int32_t width = p->store->v_head.width;
    kv_accumulate_args a = {
        .o = r->o, .p_step = KV_SCORE_STEP, .n_q = rows_of(r), .head_dim = width, .dtype = t->dtype};
    if (k->decode_v) {
        decode_cells(x, k->decode_v, t, page + first, end - first, r->kv_head, width);
        a.p = r->s + first;
        a.v = x->decoded;
        a.v_bytes = (size_t)width * sizeof(float);
        a.n_cells = end - first;
        a.dtype = KV_FLOAT;
    } else {
        span c = span_in(t, first, end);
        a.p = r->s + c.low;
        a.v = head_at(t, page + c.low, r->kv_head, width);
        a.v_bytes = kv_layout_tile_bytes(t->layout, t->dtype, t->cols);
        a.n_cells = c.high - c.low;
    }
    k->accumulate(&a);
}

/* Asks for the heads [first, first + n) of the cells [cell, cell + KV_BLOCK_CELLS) in the order of their
 * bytes: memory answers a single walk at its full rate, one for each head at a fraction of it. */
static void fetch_cells(const kv_tensor *t, int64_t cell, int32_t first, int32_t n, int32_t width) {
    size_t bytes = kv_dtype_bytes(t->dtype, (int64_t)n * width) * (size_t)t->layout->tile;
    int64_t end = cell + KV_BLOCK_CELLS < t->rows ? cell + KV_BLOCK_CELLS : t->rows;
    for (; cell < end; cell += t->layout->tile) {
        const uint8_t *at = head_at(t, cell, first, width);
        for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
    }
}

void kv_attend_fetch(const kv_attend_params *p, int64_t cell, int32_t first_head, int32_t n_heads) {
    fetch_cells(&p->store->k, cell, first_head, n_heads, p->store->k_head.width);
    fetch_cells(&p->store->v, cell, first_head, n_heads, p->store->v_head.width);
}

void kv_attend_block(const kv_node *n, const kv_attend_kernels *k, const kv_attend_rows *r,
                     const kv_attend_scratch *x, const kv_run *run, int64_t begin, int64_t end) {
    const kv_attend_params *p = params_of(n);
    int64_t cell = run->first_cell + begin, page = cell / KV_BLOCK_CELLS * KV_BLOCK_CELLS;
    int32_t first = (int32_t)(cell - page), last = first + (int32_t)(end - begin);
    if (k->tiles)
        score_tiles(p, k, r, page, first, last);
    else
        score_cells(p, k, r, x, page, first, last);
    if (p->store->centre) {
        add_centre(p, k, r, first, last);
        advance_origin(p, r);
    }
    soften_rows(p, k, r, first, last, run->pos + begin);
    accumulate_cells(p, k, r, x, page, first, last);
}
