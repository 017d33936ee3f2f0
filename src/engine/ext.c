/* ext.c: layouts that a program registers through kvant_ext.h. They enter the registries of layouts and of
 * CPU kernels, so that nothing else knows where they came from.
 *
 * A kernel of the table is called with its arguments only, while one from outside wants the public struct and
 * is a pointer that comes at run time. So each place in `slots` has a pair of functions of its own, which
 * know the place and pass on what it holds. */
#include "device/cpu/kernel.h"
#include "engine/engine.h"
#include "kvant_ext.h"

#include <stdio.h>
#include <string.h>

/* ---- calling ---- */

typedef struct slot {
    kvant_score_fn *score;
    kvant_accumulate_fn *accumulate;
    kv_kernel rows[2];
    char names[2][96];
} slot;

enum { N_SLOTS = KV_MAX_OUTSIDE_KERNELS / 2 };
static slot slots[N_SLOTS];
static int32_t n_slots;

static void call_score(const slot *s, const kv_score_args *a) {
    s->score(&(kvant_score_args){.size = sizeof(kvant_score_args),
                                 .scores = a->s,
                                 .scores_step = a->s_step,
                                 .queries = a->q,
                                 .n_queries = a->n_q,
                                 .head_dim = a->head_dim,
                                 .keys = a->k,
                                 .tile_bytes = a->k_bytes,
                                 .n_cells = a->n_cells,
                                 .type = a->dtype->name});
}

static void call_accumulate(const slot *s, const kv_accumulate_args *a) {
    s->accumulate(&(kvant_accumulate_args){.size = sizeof(kvant_accumulate_args),
                                           .sums = a->o,
                                           .weights = a->p,
                                           .weights_step = a->p_step,
                                           .n_queries = a->n_q,
                                           .head_dim = a->head_dim,
                                           .values = a->v,
                                           .tile_bytes = a->v_bytes,
                                           .n_cells = a->n_cells,
                                           .type = a->dtype->name});
}

/* Octal: 000 to 037. */
#define EIGHT(X, i) X(0##i##0) X(0##i##1) X(0##i##2) X(0##i##3) X(0##i##4) X(0##i##5) X(0##i##6) X(0##i##7)
#define ALL(X)      EIGHT(X, 0) EIGHT(X, 1) EIGHT(X, 2) EIGHT(X, 3)

#define PAIR(i)                                                                 \
    static void score_##i(const kv_score_args *a) { call_score(&slots[i], a); } \
    static void accumulate_##i(const kv_accumulate_args *a) { call_accumulate(&slots[i], a); }
ALL(PAIR)
#undef PAIR

_Static_assert(N_SLOTS == 32, "a caller for every slot");
static const struct {
    kv_score_fn *score;
    kv_accumulate_fn *accumulate;
} callers[N_SLOTS] = {
#define PAIR(i) {score_##i, accumulate_##i},
    ALL(PAIR)
#undef PAIR
};

/* ---- checking ---- */

static kv_status kernel_fault(const char *layout, const kvant_layout_kernel *k, const char *why) {
    return kv_fail(KVANT_INVALID, "layout %s: kernel for type \"%s\": %s", layout, k->type ? k->type : "",
                   why);
}

/* Kernel i of the description, whichever version of the struct the caller was compiled with. */
static kv_status take_kernel(kvant_layout_kernel *out, const kvant_layout_desc *d, int32_t i) {
    size_t step;
    memcpy(&step, d->kernels, sizeof step);
    *out = (kvant_layout_kernel)KVANT_LAYOUT_KERNEL_INIT;
    return kv_take_struct(out, sizeof *out, (const char *)d->kernels + (size_t)i * step,
                          "kvant_layout_kernel");
}

static kv_status check_kernel(const kvant_layout_desc *d, int32_t i) {
    kvant_layout_kernel k, other;
    KV_TRY(take_kernel(&k, d, i));
    const kv_dtype *dtype = k.type ? kv_dtype_by_name(k.type) : NULL;
    if (!dtype || !dtype->caches) return kernel_fault(d->name, &k, "no type that a cache can have");
    if (!k.score && !k.accumulate) return kernel_fault(d->name, &k, "neither score nor accumulate");
    for (int32_t j = 0; j < i; j++) {
        KV_TRY(take_kernel(&other, d, j));
        if (kv_dtype_by_name(other.type) == dtype) return kernel_fault(d->name, &k, "there are two");
    }
    return KVANT_OK;
}

static kv_status check_kernels(const kvant_layout_desc *d) {
    if (d->n_kernels < 0 || (d->n_kernels && !d->kernels))
        return kv_fail(KVANT_INVALID, "layout %s: n_kernels is %d, kernels is %s", d->name, d->n_kernels,
                       d->kernels ? "set" : "NULL");
    if (d->n_kernels > N_SLOTS - n_slots)
        return kv_fail(KVANT_INVALID, "layout %s: %d kernels, room for %d more", d->name, d->n_kernels,
                       N_SLOTS - n_slots);
    for (int32_t i = 0; i < d->n_kernels; i++) KV_TRY(check_kernel(d, i));
    return KVANT_OK;
}

/* ---- registering ---- */

static kv_status add_row(slot *s, int32_t i, const char *role, kv_kernel row) {
    snprintf(s->names[i], sizeof s->names[i], "%s_%s_%s_outside", role, row.a->name, row.layout->name);
    row.name = s->names[i];
    row.cpu = KV_CPU_SCALAR; /* what the processor can do is its author's business */
    s->rows[i] = row;
    return kv_kernel_add(&s->rows[i]);
}

static kv_status add_kernel(const kv_layout *layout, const kvant_layout_kernel *k) {
    const kv_dtype *dtype = kv_dtype_by_name(k->type);
    slot *s = &slots[n_slots];
    *s = (slot){.score = k->score, .accumulate = k->accumulate};
    if (k->score)
        KV_TRY(add_row(
            s, 0, "score",
            (kv_kernel){
                .role = KV_ROLE_score, .a = dtype, .layout = layout, .score = callers[n_slots].score}));
    if (k->accumulate)
        KV_TRY(add_row(s, 1, "accumulate",
                       (kv_kernel){.role = KV_ROLE_accumulate,
                                   .a = dtype,
                                   .layout = layout,
                                   .accumulate = callers[n_slots].accumulate}));
    n_slots++;
    return KVANT_OK;
}

kvant_status kvant_register_layout(const kvant_layout_desc *layout) {
    kvant_layout_desc d = KVANT_LAYOUT_DESC_INIT;
    const kv_layout *added;
    if (!layout) return kv_fail(KVANT_INVALID, "no layout is described");
    KV_TRY(kv_take_struct(&d, sizeof d, layout, "kvant_layout_desc"));
    if (d.version != KVANT_EXT_VERSION)
        return kv_fail(KVANT_INVALID, "a layout for version %d of kvant_ext.h, this library has version %d",
                       d.version, KVANT_EXT_VERSION);
    kv_layout described = {.name = d.name, .tile = d.tile, .group = d.group, .chunk = d.chunk};
    KV_TRY(kv_layout_check(&described));
    KV_TRY(check_kernels(&d));
    KV_TRY(kv_layout_add(&added, &described));
    for (int32_t i = 0; i < d.n_kernels; i++) {
        kvant_layout_kernel k;
        KV_TRY(take_kernel(&k, &d, i));
        KV_TRY(add_kernel(added, &k));
    }
    return KVANT_OK;
}
