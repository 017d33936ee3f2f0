/* cpu_matmul.c: drivers of matmul and matmul_glu. An item is some tiles of weight rows times some rows of
 * activations, sized so that the activations stay in the L2 cache and, when there are few of them, the
 * weights stream through. Weights without a kernel for the activations at hand go through a panel: a tile
 * decoded to f32, 16 rows side by side. */
#include "device/cpu/cpu_op.h"
#include "op/glu.h"
#include "op/matmul.h"

#include <math.h>
#include <string.h>

enum {
    PANEL_COLS = 256,             /* a multiple of every block size */
    FEW_X = 8,                    /* up to here an item is sized by its weights */
    ITEM_WEIGHT_BYTES = 48 << 10, /* of an item with few activations */
    ITEM_X_BYTES = 384 << 10,     /* of an item with many: most of an L2 cache */
    MAX_ITEM_X = 128,
    MAX_ITEM_TILES = 8,
};

/* How one weight matrix is multiplied. */
typedef struct product {
    const kv_tensor *x, *w;
    kv_matmul_fn *kernel; /* NULL: by panels */
    kv_panel_fn *panel;
    kv_decode_fn *decode_w, *decode_x;
} product;

typedef struct matmul_impl {
    kv_cpu_impl head;
    product products[2]; /* one, or gate and up */
    kv_glu_fn *glu;
    kv_encode_fn *encode;
    int32_t item_tiles, item_x;
    int64_t n_row_items;
} matmul_impl;

static int64_t n_tiles(const kv_tensor *w) { return (w->rows + KV_TILE_ROWS - 1) / KV_TILE_ROWS; }

/* ---- workspace of a thread: results of an item, then what panels need ---- */

static size_t results_bytes(const matmul_impl *m) {
    return (size_t)m->item_x * (size_t)m->item_tiles * KV_TILE_ROWS * sizeof(float);
}

typedef struct panel_work {
    float *panel;   /* PANEL_COLS x 16 */
    float *x;       /* item_x x PANEL_COLS */
    float *row;     /* PANEL_COLS */
    float *y;       /* item_x x 16 */
    uint8_t *plain; /* 16 coded rows */
} panel_work;

static size_t panel_work_bytes(const product *p, int32_t item_x) {
    size_t floats =
        PANEL_COLS * KV_TILE_ROWS + (size_t)(item_x + 1) * PANEL_COLS + (size_t)item_x * KV_TILE_ROWS;
    return floats * sizeof(float) + KV_TILE_ROWS * kv_dtype_bytes(p->w->dtype, p->w->cols);
}

static panel_work panel_work_at(void *at, int32_t item_x) {
    panel_work w = {.panel = at};
    w.x = w.panel + PANEL_COLS * KV_TILE_ROWS;
    w.row = w.x + (size_t)item_x * PANEL_COLS;
    w.y = w.row + PANEL_COLS;
    w.plain = (uint8_t *)(w.y + (size_t)item_x * KV_TILE_ROWS);
    return w;
}

/* ---- panels ---- */

/* Columns [c, c + n) of the tile's coded rows, side by side. */
static void fill_panel(const product *p, const panel_work *pw, int64_t c, int64_t n, int64_t n_rows) {
    size_t row_bytes = kv_dtype_bytes(p->w->dtype, p->w->cols), skip = kv_dtype_bytes(p->w->dtype, c);
    for (int64_t r = 0; r < KV_TILE_ROWS; r++) {
        if (r < n_rows)
            p->decode_w(pw->row, pw->plain + (size_t)r * row_bytes + skip, n);
        else
            memset(pw->row, 0, (size_t)n * sizeof *pw->row);
        for (int64_t i = 0; i < n; i++) pw->panel[i * KV_TILE_ROWS + r] = pw->row[i];
    }
}

/* One tile times n_x rows of x from `first_x` on, into y. */
static void multiply_tile_by_panels(const product *p, const panel_work *pw, int64_t tile, int64_t first_x,
                                    int32_t n_x, float *y, size_t y_step) {
    const kv_tensor *w = p->w;
    int64_t first = tile * KV_TILE_ROWS,
            n_rows = w->rows - first < KV_TILE_ROWS ? w->rows - first : KV_TILE_ROWS;
    kv_layout_unpack(w->layout, w->dtype, w->cols, pw->plain, kv_tensor_data(w), first, n_rows);
    memset(pw->y, 0, (size_t)n_x * KV_TILE_ROWS * sizeof *pw->y);
    for (int64_t c = 0; c < w->cols; c += PANEL_COLS) {
        int64_t n = w->cols - c < PANEL_COLS ? w->cols - c : PANEL_COLS;
        fill_panel(p, pw, c, n, n_rows);
        for (int32_t j = 0; j < n_x; j++) {
            const uint8_t *x = kv_tensor_row(p->x, first_x + j);
            p->decode_x(pw->x + (size_t)j * PANEL_COLS, x + kv_dtype_bytes(p->x->dtype, c), n);
        }
        p->panel(&(kv_panel_args){.w = pw->panel,
                                  .cols = n,
                                  .x = pw->x,
                                  .x_step = PANEL_COLS,
                                  .n_x = n_x,
                                  .y = pw->y,
                                  .y_step = KV_TILE_ROWS});
    }
    for (int32_t j = 0; j < n_x; j++)
        memcpy(y + (size_t)j * y_step, pw->y + (size_t)j * KV_TILE_ROWS, KV_TILE_ROWS * sizeof *y);
}

static void multiply(const product *p, int64_t tile, int32_t tiles, int64_t first_x, int32_t n_x, float *y,
                     size_t y_step, void *panel_at, int32_t item_x) {
    const kv_tensor *w = p->w;
    size_t tile_bytes = KV_TILE_ROWS * kv_dtype_bytes(w->dtype, w->cols);
    if (p->kernel) {
        p->kernel(&(kv_matmul_args){.w = (const uint8_t *)kv_tensor_data(w) + (size_t)tile * tile_bytes,
                                    .tile_bytes = tile_bytes,
                                    .n_tiles = tiles,
                                    .cols = w->cols,
                                    .x = kv_tensor_row(p->x, first_x),
                                    .x_bytes = kv_dtype_bytes(p->x->dtype, w->cols),
                                    .n_x = n_x,
                                    .y = y,
                                    .y_step = y_step});
        return;
    }
    panel_work pw = panel_work_at(panel_at, item_x);
    for (int32_t t = 0; t < tiles; t++)
        multiply_tile_by_panels(p, &pw, tile + t, first_x, n_x, y + (size_t)t * KV_TILE_ROWS, y_step);
}

/* ---- preparing ---- */

static product make_product(const kv_tensor *x, const kv_tensor *w, unsigned cpu, const char **name) {
    const kv_kernel *k = kv_kernel_pick(KV_ROLE_matmul, w->dtype, x->dtype, w->layout, cpu);
    const kv_kernel *panel = kv_kernel_pick(KV_ROLE_panel, NULL, NULL, NULL, cpu);
    *name = k ? k->name : panel->name;
    return (product){.x = x,
                     .w = w,
                     .kernel = k ? k->matmul : NULL,
                     .panel = panel->panel,
                     .decode_w = kv_cpu_decoder(w->dtype, cpu),
                     .decode_x = kv_cpu_decoder(x->dtype, cpu)};
}

static int32_t clamp(int64_t n, int64_t low, int64_t high) {
    return (int32_t)(n < low ? low : n > high ? high : n);
}

/* `step`: tiles of an item come in multiples of it. */
static void size_items(matmul_impl *m, const kv_tensor *x, const kv_tensor *w, int32_t step) {
    int64_t tile_bytes = (int64_t)(KV_TILE_ROWS * kv_dtype_bytes(w->dtype, w->cols));
    int64_t x_bytes = (int64_t)kv_dtype_bytes(x->dtype, x->cols);
    bool few = x->rows <= FEW_X;
    m->item_x = few ? (int32_t)x->rows : clamp(ITEM_X_BYTES / x_bytes, 16, MAX_ITEM_X);
    int64_t tiles = few ? ITEM_WEIGHT_BYTES / tile_bytes : MAX_ITEM_TILES;
    m->item_tiles = clamp(tiles, 1, MAX_ITEM_TILES);
    m->item_tiles = (m->item_tiles + step - 1) / step * step;
    m->n_row_items = (n_tiles(w) + m->item_tiles - 1) / m->item_tiles;
}

static kv_status finish_impl(kv_node *n, kv_arena *arena, matmul_impl *m, int n_products) {
    size_t panels = 0;
    for (int i = 0; i < n_products; i++) {
        size_t bytes = m->products[i].kernel ? 0 : panel_work_bytes(&m->products[i], m->item_x);
        if (bytes > panels) panels = bytes;
    }
    m->head.work_bytes = (size_t)n_products * results_bytes(m) + panels;
    n->impl = kv_arena_alloc(arena, 1, sizeof *m);
    if (!n->impl) return KVANT_NO_MEMORY;
    memcpy(n->impl, m, sizeof *m);
    return KVANT_OK;
}

static int64_t matmul_items(const kv_node *n, int32_t phase) {
    (void)phase;
    const matmul_impl *m = n->impl;
    return m->n_row_items * ((n->in[0]->rows + m->item_x - 1) / m->item_x);
}

/* What an item covers. */
typedef struct range {
    int64_t tile, first_x, first_row, n_rows;
    int32_t tiles, n_x;
} range;

static range range_of(const matmul_impl *m, int64_t item) {
    const kv_tensor *x = m->products[0].x, *w = m->products[0].w;
    range r = {.tile = item % m->n_row_items * m->item_tiles, .first_x = item / m->n_row_items * m->item_x};
    r.tiles = clamp(n_tiles(w) - r.tile, 0, m->item_tiles);
    r.n_x = clamp(x->rows - r.first_x, 0, m->item_x);
    r.first_row = r.tile * KV_TILE_ROWS;
    r.n_rows =
        w->rows - r.first_row < r.tiles * KV_TILE_ROWS ? w->rows - r.first_row : r.tiles * KV_TILE_ROWS;
    return r;
}

/* ---- matmul ---- */

static bool float_or_absent(const kv_tensor *t) { return !t || t->dtype == KV_FLOAT; }

static bool matmul_accepts(const kv_node *n, unsigned cpu) {
    (void)cpu;
    return n->out->dtype == KV_FLOAT && float_or_absent(n->in[2]) && float_or_absent(n->in[3]);
}

static kv_status matmul_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    matmul_impl m = {0};
    m.products[0] = make_product(n->in[0], n->in[1], cpu, &m.head.kernel);
    size_items(&m, n->in[0], n->in[1], 1);
    return finish_impl(n, arena, &m, 1);
}

static void finish_row(const kv_node *n, float *y, int64_t row, const range *r) {
    const kv_matmul_params *p = n->params;
    if (n->in[2]) {
        const float *bias = (const float *)kv_tensor_data(n->in[2]) + r->first_row;
        for (int64_t i = 0; i < r->n_rows; i++) y[i] += bias[i];
    }
    if (n->in[3]) {
        const float *residual = (const float *)kv_tensor_row(n->in[3], row) + r->first_row;
        for (int64_t i = 0; i < r->n_rows; i++) y[i] += residual[i];
    }
    for (int64_t i = 0; p->softcap > 0 && i < r->n_rows; i++) y[i] = p->softcap * tanhf(y[i] / p->softcap);
}

static kv_status matmul_run(const kv_node *n, int32_t phase, int64_t item, void *work) {
    (void)phase;
    const matmul_impl *m = n->impl;
    range r = range_of(m, item);
    size_t wide = (size_t)r.tiles * KV_TILE_ROWS;
    bool whole = (int64_t)wide == r.n_rows; /* a padded last tile would write past the row */
    float *out = (float *)kv_tensor_row(n->out, r.first_x) + r.first_row, *y = whole ? out : work;
    size_t y_step = whole ? (size_t)n->out->cols : wide;
    multiply(&m->products[0], r.tile, r.tiles, r.first_x, r.n_x, y, y_step,
             (uint8_t *)work + results_bytes(m), m->item_x);
    for (int32_t j = 0; j < r.n_x; j++) {
        float *row = out + (size_t)j * (size_t)n->out->cols;
        if (!whole) memcpy(row, y + (size_t)j * y_step, (size_t)r.n_rows * sizeof *row);
        finish_row(n, row, r.first_x + j, &r);
    }
    return KVANT_OK;
}

const kv_cpu_op kv_cpu_matmul = {.op = &kv_op_matmul,
                                 .n_phases = 1,
                                 .accepts = matmul_accepts,
                                 .prepare = matmul_prepare,
                                 .n_items = matmul_items,
                                 .run = matmul_run};

/* ---- matmul_glu ---- */

static int32_t glu_step(const kv_node *n) {
    int32_t block = n->out->dtype->block_elems;
    return block > KV_TILE_ROWS ? block / KV_TILE_ROWS : 1;
}

/* An item's rows have to be whole blocks of the output. */
static bool matmul_glu_accepts(const kv_node *n, unsigned cpu) {
    (void)cpu;
    const kv_tensor *gate = n->in[1];
    int32_t step = glu_step(n) * KV_TILE_ROWS;
    return step % n->out->dtype->block_elems == 0 && gate->rows % n->out->dtype->block_elems == 0;
}

static kv_status matmul_glu_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    const kv_glu_params *p = n->params;
    bool silu = p->act == KV_GLU_SILU;
    const kv_kernel *k = kv_kernel_pick(silu ? KV_ROLE_glu_silu : KV_ROLE_glu_gelu, NULL, NULL, NULL, cpu);
    matmul_impl m = {.glu = silu ? k->glu_silu : k->glu_gelu, .encode = kv_cpu_encoder(n->out->dtype, cpu)};
    m.products[1] = make_product(n->in[0], n->in[2], cpu, &m.head.kernel);
    m.products[0] = make_product(n->in[0], n->in[1], cpu, &m.head.kernel);
    size_items(&m, n->in[0], n->in[1], glu_step(n));
    return finish_impl(n, arena, &m, 2);
}

static kv_status matmul_glu_run(const kv_node *n, int32_t phase, int64_t item, void *work) {
    (void)phase;
    const matmul_impl *m = n->impl;
    range r = range_of(m, item);
    size_t y_step = (size_t)r.tiles * KV_TILE_ROWS;
    float *gate = work, *up = (float *)((uint8_t *)work + results_bytes(m));
    void *panels = (uint8_t *)up + results_bytes(m);
    multiply(&m->products[0], r.tile, r.tiles, r.first_x, r.n_x, gate, y_step, panels, m->item_x);
    multiply(&m->products[1], r.tile, r.tiles, r.first_x, r.n_x, up, y_step, panels, m->item_x);
    for (int32_t j = 0; j < r.n_x; j++) {
        float *g = gate + (size_t)j * y_step;
        uint8_t *out = kv_tensor_row(n->out, r.first_x + j);
        m->glu(g, g, up + (size_t)j * y_step, r.n_rows);
        m->encode(out + kv_dtype_bytes(n->out->dtype, r.first_row), g, r.n_rows);
    }
    return KVANT_OK;
}

const kv_cpu_op kv_cpu_matmul_glu = {.op = &kv_op_matmul_glu,
                                     .n_phases = 1,
                                     .accepts = matmul_glu_accepts,
                                     .prepare = matmul_glu_prepare,
                                     .n_items = matmul_items,
                                     .run = matmul_glu_run};
