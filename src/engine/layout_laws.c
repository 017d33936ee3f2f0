/* layout_laws.c: the laws of layouts. What an op makes of a store in the layout is what it makes of the same
 * cells in plain rows: byte for byte where bytes are moved, within f32 rounding for attention, whose truth is
 * the scalar reference on the rows. */
#include "engine/layout_laws.h"

#include "engine/layout_bed.h"
#include "op/cache_shift.h"
#include "sched/plan.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fault(kv_law_result *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fault(kv_law_result *r, const char *format, ...) {
    va_list args;
    if (!r->holds) return;
    r->holds = false;
    va_start(args, format);
    vsnprintf(r->fault, sizeof r->fault, format, args);
    va_end(args);
}

/* ---- bytes: every byte of some rows has a place of its own, and pack and unpack go there ---- */

typedef struct matrix {
    const kv_layout *l;
    const kv_dtype *d;
    int64_t rows, cols;
    size_t row_bytes, bytes;
    uint8_t *plain, *packed, *back;
} matrix;

static kv_status open_matrix(matrix *m, kv_arena *arena, uint64_t seed) {
    kv_random random;
    kv_random_init(&random, seed);
    m->row_bytes = kv_dtype_bytes(m->d, m->cols);
    m->bytes = kv_layout_bytes(m->l, m->d, m->rows, m->cols);
    m->plain = kv_arena_alloc(arena, m->row_bytes, (size_t)m->rows);
    m->packed = kv_arena_alloc(arena, m->bytes, 1);
    m->back = kv_arena_alloc(arena, m->bytes, 1);
    if (!m->plain || !m->packed || !m->back) return KVANT_NO_MEMORY;
    for (size_t i = 0; i < m->row_bytes * (size_t)m->rows; i++) m->plain[i] = (uint8_t)kv_random_u64(&random);
    return KVANT_OK;
}

/* back[at] counts the plain bytes that lie at `at`. */
static void check_addresses(kv_law_result *r, const matrix *m) {
    size_t n = 0;
    kv_layout_pack(m->l, m->d, m->cols, m->packed, m->plain, 0, m->rows);
    for (int64_t row = 0; row < m->rows; row++)
        for (int64_t block = 0; block < m->cols / m->d->block_elems; block++)
            for (int32_t p = 0; p < m->d->n_planes; p++)
                for (int32_t i = 0; i < m->d->plane_bytes[p]; i++, n++) {
                    size_t at = kv_layout_locate(m->l, m->d, m->cols, row, block, p, i);
                    if (at >= m->bytes || m->back[at]++)
                        fault(r, "%s: byte %zu of row %lld lies where another does", m->d->name,
                              n % m->row_bytes, (long long)row);
                    else if (m->packed[at] != m->plain[n])
                        fault(r, "%s: byte %zu of row %lld is not packed to its place", m->d->name,
                              n % m->row_bytes, (long long)row);
                }
}

static void check_unpack(kv_law_result *r, const matrix *m) {
    for (int64_t row = m->rows - 1; row >= 0; row--)
        kv_layout_pack(m->l, m->d, m->cols, m->packed, m->plain + (size_t)row * m->row_bytes, row, 1);
    kv_layout_unpack(m->l, m->d, m->cols, m->back, m->packed, 0, m->rows);
    if (memcmp(m->back, m->plain, m->row_bytes * (size_t)m->rows))
        fault(r, "%s: %lld rows unpacked are not what was packed", m->d->name, (long long)m->rows);
}

static kv_status over_matrices(kv_law_result *r, const kv_layout *l, const kv_dtype *d, uint64_t seed,
                               void (*check)(kv_law_result *, const matrix *)) {
    const int64_t rows[] = {1, l->tile, l->tile + 1, 2 * l->tile + 3}, blocks[] = {1, 3};
    kv_status status = KVANT_OK;
    for (int32_t i = 0; i < 8 && !status; i++, r->n_cases++) {
        kv_arena arena = {0};
        matrix m = {.l = l, .d = d, .rows = rows[i / 2], .cols = blocks[i % 2] * d->block_elems};
        status = open_matrix(&m, &arena, seed + (uint64_t)i);
        if (!status) check(r, &m);
        kv_arena_clear(&arena);
    }
    return status;
}

static kv_status law_addresses(kv_law_result *r, const kv_layout *l, const kv_dtype *d, unsigned cpu,
                               uint64_t seed) {
    (void)cpu;
    return over_matrices(r, l, d, seed, check_addresses);
}

static kv_status law_unpack(kv_law_result *r, const kv_layout *l, const kv_dtype *d, unsigned cpu,
                            uint64_t seed) {
    (void)cpu;
    return over_matrices(r, l, d, seed, check_unpack);
}

/* ---- ops: the same in the layout and in rows ---- */

/* Two stores of the same type. */
typedef struct trial {
    kv_bed bed;
    kv_store packed, rows;
    int32_t dim;
} trial;

/* Runs the graph's only node on the device, and gives its result as numbers (or NULL). */
static kv_status run_graph(kv_graph *g, const kv_bed *b, const kv_tensor *out, float *numbers) {
    kv_plan *plan = NULL;
    atomic_bool cancel = false;
    KV_TRY(kv_plan_create(&plan, g, &b->device, 1));
    kv_status status = kv_plan_run(plan, &cancel);
    if (!status && out) memcpy(numbers, kv_tensor_data(out), kv_tensor_bytes(out));
    kv_plan_destroy(plan);
    return status;
}

static void compare_cells(kv_law_result *r, const kv_tensor *t, const kv_tensor *rows, const char *what,
                          uint8_t *plain) {
    for (int64_t cell = 0; cell < t->rows; cell++) {
        kv_layout_unpack(t->layout, t->dtype, t->cols, plain, kv_tensor_data(t), cell, 1);
        if (memcmp(plain, kv_tensor_row(rows, cell), kv_dtype_bytes(t->dtype, t->cols)))
            fault(r, "%s: cell %lld of %s differs from plain rows", t->dtype->name, (long long)cell, what);
    }
}

static kv_status compare_stores(kv_law_result *r, trial *t) {
    uint8_t *plain = kv_arena_alloc(&t->bed.arena, 1, kv_dtype_bytes(t->rows.k.dtype, t->rows.k.cols));
    if (!plain) return KVANT_NO_MEMORY;
    compare_cells(r, &t->packed.k, &t->rows.k, "K", plain);
    compare_cells(r, &t->packed.v, &t->rows.v, "V", plain);
    return KVANT_OK;
}

static kv_status write_store(trial *t, kv_store *s, kv_tensor *k, kv_tensor *v) {
    kv_cache_write_params p = kv_bed_writing(&t->bed, s);
    kv_graph g;
    kv_graph_init(&g);
    kv_cache_write(&g, &p, k, v, t->bed.table);
    return run_graph(&g, &t->bed, NULL, NULL);
}

static kv_status try_writing(kv_law_result *r, trial *t) {
    int64_t cols = KV_BED_HEADS * t->dim;
    kv_tensor *k = kv_bed_floats(&t->bed, KV_BED_TOKENS, cols),
              *v = kv_bed_floats(&t->bed, KV_BED_TOKENS, cols);
    if (!k || !v) return KVANT_NO_MEMORY;
    KV_TRY(write_store(t, &t->packed, k, v));
    KV_TRY(write_store(t, &t->rows, k, v));
    return compare_stores(r, t);
}

static kv_status shift_store(trial *t, kv_store *s, const kv_cell_turns *turns) {
    kv_cache_shift_params p = {&t->bed.rope, s, turns};
    kv_graph g;
    kv_graph_init(&g);
    kv_cache_shift_keys(&g, &p);
    return run_graph(&g, &t->bed, NULL, NULL);
}

static kv_status try_shifting(kv_law_result *r, trial *t) {
    const int64_t deltas[KV_BED_TOKENS] = {-3, 100, 7, -50, 1};
    int32_t cells[KV_BED_TOKENS];
    kv_cell_turns turns = {KV_BED_TOKENS, cells, deltas};
    for (int32_t i = 0; i < KV_BED_TOKENS; i++) cells[i] = t->bed.runs[0].first_cell + 3 * i;
    KV_TRY(kv_bed_fill(&t->bed, &t->packed, &t->rows, 0xff));
    KV_TRY(shift_store(t, &t->packed, &turns));
    KV_TRY(shift_store(t, &t->rows, &turns));
    return compare_stores(r, t);
}

/* ---- attention ---- */

static kv_status attend(trial *t, const kv_store *s, kv_tensor *q, float *numbers) {
    kv_attend_params p = kv_bed_attention(&t->bed, s);
    kv_graph g;
    kv_graph_init(&g);
    kv_tensor *out = kv_attend(&g, &p, q, t->bed.table, KV_FLOAT);
    return run_graph(&g, &t->bed, out, numbers);
}

static kv_status attend_reference(trial *t, kv_tensor *q, kv_tensor *out) {
    kv_attend_params p = kv_bed_attention(&t->bed, &t->rows);
    kv_node node = {.op = &kv_op_attend, .in = {q, t->bed.table}, .out = out, .params = &p};
    return kv_op_attend.reference(&node);
}

/* Keys and values are normal random numbers: a score is at most about `length` and off by its roundings,
 * which changes each probability by that share; a sum over cells is rounded likewise. */
static double allowed(const trial *t) {
    double length = 3 * sqrt(t->dim) + 10, terms = 16 + 2 * sqrt(3 * t->dim),
           cells = 2 * sqrt((double)t->bed.n_cells);
    return 0x1p-24 * 6 * (4 * length * terms + 16 + cells);
}

static void compare_numbers(kv_law_result *r, const trial *t, const float *got, const float *want,
                            int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - (double)want[i]);
        if (!(off <= allowed(t)))
            fault(r, "%s, heads of %d: attention is %.7g, reference %.7g, off by %.2g, allowed %.2g",
                  t->rows.k.dtype->name, t->dim, (double)got[i], (double)want[i], off, allowed(t));
    }
}

static kv_status try_attention(kv_law_result *r, trial *t) {
    int64_t cols = KV_BED_HEADS * KV_BED_GROUP * t->dim;
    kv_tensor *q = kv_bed_floats(&t->bed, KV_BED_TOKENS, cols),
              *want = kv_bed_floats(&t->bed, KV_BED_TOKENS, cols),
              *got = kv_bed_floats(&t->bed, KV_BED_TOKENS, cols);
    if (!q || !want || !got) return KVANT_NO_MEMORY;
    KV_TRY(kv_bed_fill(&t->bed, &t->packed, &t->rows, 0xff));
    KV_TRY(attend(t, &t->packed, q, kv_tensor_data(got)));
    KV_TRY(attend_reference(t, q, want));
    compare_numbers(r, t, kv_tensor_data(got), kv_tensor_data(want), KV_BED_TOKENS * cols);
    return KVANT_OK;
}

/* The bytes of cells that hold no token change nothing, bit for bit. */
static kv_status try_unused(kv_law_result *r, trial *t) {
    int64_t cols = KV_BED_HEADS * KV_BED_GROUP * t->dim;
    kv_tensor *q = kv_bed_floats(&t->bed, KV_BED_TOKENS, cols),
              *nan = kv_bed_floats(&t->bed, KV_BED_TOKENS, cols),
              *zero = kv_bed_floats(&t->bed, KV_BED_TOKENS, cols);
    if (!q || !nan || !zero) return KVANT_NO_MEMORY;
    kv_random random = t->bed.random;
    KV_TRY(kv_bed_fill(&t->bed, &t->packed, &t->rows, 0xff));
    KV_TRY(attend(t, &t->packed, q, kv_tensor_data(nan)));
    t->bed.random = random; /* the same numbers again */
    KV_TRY(kv_bed_fill(&t->bed, &t->packed, &t->rows, 0));
    KV_TRY(attend(t, &t->packed, q, kv_tensor_data(zero)));
    if (memcmp(kv_tensor_data(nan), kv_tensor_data(zero), kv_tensor_bytes(zero)))
        fault(r, "%s, heads of %d: attention depends on the bytes of unused cells", t->rows.k.dtype->name,
              t->dim);
    return KVANT_OK;
}

/* ---- over head sizes, with the Hadamard transform and without ---- */

typedef kv_status try_fn(kv_law_result *r, trial *t);

static kv_status over_trials(kv_law_result *r, const kv_layout *l, const kv_dtype *d, unsigned cpu,
                             uint64_t seed, try_fn *attempt) {
    static const int32_t dims[] = {64, 80, 128};
    kv_status status = KVANT_OK;
    for (int32_t i = 0; i < 6 && !status; i++, r->n_cases++) {
        trial t = {.dim = dims[i / 2]};
        bool rotated = i % 2 != 0;
        status = kv_bed_open(&t.bed, t.dim, 133, cpu, seed + (uint64_t)i);
        if (!status) status = kv_bed_store(&t.packed, &t.bed, d, l, t.dim, rotated);
        if (!status) status = kv_bed_store(&t.rows, &t.bed, d, &kv_layout_rows, t.dim, rotated);
        if (!status) status = attempt(r, &t);
        kv_bed_release(&t.packed);
        kv_bed_release(&t.rows);
        kv_bed_close(&t.bed);
    }
    return status;
}

#define TRIAL_LAW(name, attempt)                                                                 \
    static kv_status name(kv_law_result *r, const kv_layout *l, const kv_dtype *d, unsigned cpu, \
                          uint64_t seed) {                                                       \
        return over_trials(r, l, d, cpu, seed, attempt);                                         \
    }
TRIAL_LAW(law_writing, try_writing)
TRIAL_LAW(law_shifting, try_shifting)
TRIAL_LAW(law_attention, try_attention)
TRIAL_LAW(law_unused, try_unused)

static const kv_law laws[] = {
    {"every byte has a place of its own", law_addresses},
    {"unpacking gives what was packed", law_unpack},
    {"cells are written as in plain rows", law_writing},
    {"keys are rotated in place as in plain rows", law_shifting},
    {"attention is the scalar reference's", law_attention},
    {"unused cells are never looked at", law_unused},
};

int32_t kv_law_count(void) { return (int32_t)(sizeof laws / sizeof *laws); }
const kv_law *kv_law_at(int32_t i) { return &laws[i]; }
