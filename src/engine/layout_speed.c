/* layout_speed.c: what a cell costs in a layout, on one thread: to write (coded and scattered), to read
 * (gathered and decoded), and to attend to. The least of many runs counts. */
#include "base/clock.h"
#include "engine/layout_bed.h"
#include "engine/layout_laws.h"
#include "sched/plan.h"

#include <math.h>

enum { DIM = 128, CELLS = 2048, RUNS = 9 };

/* Nanoseconds of the fastest run of a plan that is made from the graph. */
static kv_status time_graph(double *ns, kv_graph *g, const kv_bed *b) {
    kv_plan *plan = NULL;
    atomic_bool cancel = false;
    KV_TRY(kv_plan_create(&plan, g, &b->device, 1));
    kv_status status = KVANT_OK;
    *ns = INFINITY;
    for (int32_t i = 0; i < RUNS && !status; i++) {
        int64_t start = kv_now_ns();
        status = kv_plan_run(plan, &cancel);
        *ns = fmin(*ns, (double)(kv_now_ns() - start));
    }
    kv_plan_destroy(plan);
    return status;
}

static kv_status time_writing(double *ns, kv_bed *b, kv_store *s) {
    kv_cache_write_params p = kv_bed_writing(b, s);
    kv_tensor *k = kv_bed_floats(b, KV_BED_TOKENS, KV_BED_HEADS * DIM);
    kv_tensor *v = kv_bed_floats(b, KV_BED_TOKENS, KV_BED_HEADS * DIM);
    kv_graph g;
    kv_graph_init(&g);
    kv_cache_write(&g, &p, k, v, b->table);
    KV_TRY(time_graph(ns, &g, b));
    *ns /= KV_BED_TOKENS;
    return KVANT_OK;
}

static kv_status time_attention(double *ns, kv_bed *b, const kv_store *s) {
    kv_attend_params p = kv_bed_attention(b, s);
    kv_tensor *q = kv_bed_floats(b, KV_BED_TOKENS, KV_BED_HEADS * KV_BED_GROUP * DIM);
    kv_graph g;
    kv_graph_init(&g);
    kv_tensor *out = kv_attend(&g, &p, q, b->table, KV_FLOAT);
    (void)out;
    KV_TRY(time_graph(ns, &g, b));
    *ns /= CELLS;
    return KVANT_OK;
}

static kv_status time_reading(double *ns, kv_bed *b, const kv_store *s) {
    const kv_tensor *t = &s->k;
    void *plain = kv_arena_alloc(&b->arena, 1, kv_dtype_bytes(t->dtype, t->cols));
    float *numbers = kv_arena_alloc(&b->arena, (size_t)t->cols, sizeof *numbers);
    if (!plain || !numbers) return KVANT_NO_MEMORY;
    *ns = INFINITY;
    for (int32_t i = 0; i < RUNS; i++) {
        int64_t start = kv_now_ns();
        for (int32_t cell = 0; cell < 128; cell++) {
            kv_layout_unpack(t->layout, t->dtype, t->cols, plain, kv_tensor_data(t), cell, 1);
            t->dtype->decode(numbers, plain, t->cols);
        }
        *ns = fmin(*ns, (double)(kv_now_ns() - start) / 128);
    }
    return KVANT_OK;
}

typedef struct times {
    double write, read, attend;
} times;

static kv_status time_store(times *out, kv_bed *b, const kv_dtype *d, const kv_layout *l) {
    kv_store s = {0}, rows = {0};
    kv_status status = kv_bed_store(&s, b, d, l, DIM, false);
    if (!status) status = kv_bed_store(&rows, b, d, &kv_layout_rows, DIM, false);
    if (!status) status = kv_bed_fill(b, &s, &rows, 0);
    if (!status) status = time_attention(&out->attend, b, &s);
    if (!status) status = time_reading(&out->read, b, &s);
    if (!status) status = time_writing(&out->write, b, &s);
    kv_bed_release(&s);
    kv_bed_release(&rows);
    return status;
}

kv_status kv_layout_time(kvant_layout_speed *out, const kv_layout *l, const kv_dtype *d, unsigned cpu,
                         uint64_t seed) {
    kv_bed bed;
    times own = {0}, rows = {0};
    kv_status status = kv_bed_open(&bed, DIM, CELLS, cpu, seed);
    if (!status) status = time_store(&own, &bed, d, l);
    if (!status) status = time_store(&rows, &bed, d, &kv_layout_rows);
    kv_bed_close(&bed);
    *out = (kvant_layout_speed){.size = sizeof *out,
                                .type = d->name,
                                .write_ns = own.write,
                                .read_ns = own.read,
                                .attend_ns = own.attend,
                                .rows_write_ns = rows.write,
                                .rows_read_ns = rows.read,
                                .rows_attend_ns = rows.attend};
    return status;
}
