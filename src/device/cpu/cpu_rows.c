/* cpu_rows.c: drivers of the ops that work row by row: embed, select, norm, glu, rope_table. */
#include "device/cpu/cpu_op.h"
#include "op/embed.h"
#include "op/glu.h"
#include "op/norm.h"
#include "op/rope_table.h"
#include "op/select.h"

#include <string.h>

static bool accept_all(const kv_node *n, unsigned cpu) { return (void)n, (void)cpu, true; }

static int64_t one_item_per_row(const kv_node *n, int32_t phase) { return (void)phase, n->out->rows; }

static kv_status set_impl(kv_node *n, kv_arena *arena, const void *impl, size_t bytes) {
    n->impl = kv_arena_alloc(arena, 1, bytes);
    if (!n->impl) return KVANT_NO_MEMORY;
    memcpy(n->impl, impl, bytes);
    return KVANT_OK;
}

/* ---- embed ---- */

typedef struct embed_impl {
    kv_cpu_impl head;
    kv_decode_fn *decode;
    kv_encode_fn *encode;
} embed_impl;

static kv_status embed_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    const kv_tensor *table = n->in[0];
    size_t plain = kv_round_up(kv_dtype_bytes(table->dtype, table->cols), 64);
    embed_impl impl = {.head = {.kernel = "embed", .work_bytes = plain + (size_t)table->cols * sizeof(float)},
                       .decode = kv_cpu_decoder(table->dtype, cpu),
                       .encode = kv_cpu_encoder(n->out->dtype, cpu)};
    return set_impl(n, arena, &impl, sizeof impl);
}

static kv_status embed_run(const kv_node *n, int32_t phase, int64_t item, void *work) {
    (void)phase;
    const embed_impl *impl = n->impl;
    const kv_embed_params *p = n->params;
    const kv_tensor *table = n->in[0];
    float *row = (float *)((uint8_t *)work + kv_round_up(kv_dtype_bytes(table->dtype, table->cols), 64));
    kv_layout_unpack(table->layout, table->dtype, table->cols, work, kv_tensor_data(table), p->tokens[item],
                     1);
    impl->decode(row, work, table->cols);
    for (int64_t c = 0; p->scale != 1 && c < table->cols; c++) row[c] *= p->scale;
    impl->encode(kv_tensor_row(n->out, item), row, table->cols);
    return KVANT_OK;
}

const kv_cpu_op kv_cpu_embed = {.op = &kv_op_embed,
                                .n_phases = 1,
                                .accepts = accept_all,
                                .prepare = embed_prepare,
                                .n_items = one_item_per_row,
                                .run = embed_run};

/* ---- select ---- */

static kv_status select_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    (void)cpu;
    kv_cpu_impl impl = {.kernel = "select"};
    return set_impl(n, arena, &impl, sizeof impl);
}

static kv_status select_run(const kv_node *n, int32_t phase, int64_t item, void *work) {
    (void)phase, (void)work;
    const kv_select_params *p = n->params;
    memcpy(kv_tensor_row(n->out, item), kv_tensor_row(n->in[0], p->rows[item]),
           kv_dtype_bytes(n->out->dtype, n->out->cols));
    return KVANT_OK;
}

const kv_cpu_op kv_cpu_select = {.op = &kv_op_select,
                                 .n_phases = 1,
                                 .accepts = accept_all,
                                 .prepare = select_prepare,
                                 .n_items = one_item_per_row,
                                 .run = select_run};

/* ---- norm ---- */

typedef struct norm_impl {
    kv_cpu_impl head;
    kv_norm_fn *norm;
    kv_encode_fn *encode;
} norm_impl;

static bool norm_accepts(const kv_node *n, unsigned cpu) {
    (void)cpu;
    return n->in[0]->dtype == KV_FLOAT && n->in[1]->dtype == KV_FLOAT &&
           (!n->in[2] || n->in[2]->dtype == KV_FLOAT);
}

static kv_status norm_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    const kv_kernel *k = kv_kernel_pick(KV_ROLE_norm, NULL, NULL, NULL, cpu);
    norm_impl impl = {.head = {.kernel = k->name, .work_bytes = (size_t)n->out->cols * sizeof(float)},
                      .norm = k->norm,
                      .encode = kv_cpu_encoder(n->out->dtype, cpu)};
    return set_impl(n, arena, &impl, sizeof impl);
}

static kv_status norm_run(const kv_node *n, int32_t phase, int64_t item, void *work) {
    (void)phase;
    const norm_impl *impl = n->impl;
    const kv_norm_params *p = n->params;
    int64_t cols = n->out->cols;
    const float *x = kv_tensor_row(n->in[0], item), *weight = kv_tensor_data(n->in[1]);
    float *y = n->out->dtype == KV_FLOAT ? kv_tensor_row(n->out, item) : work;
    for (int64_t c = 0; c < cols; c += p->width) impl->norm(y + c, x + c, weight, p->width, p->eps);
    if (n->in[2]) {
        const float *residual = kv_tensor_row(n->in[2], item);
        for (int64_t c = 0; c < cols; c++) y[c] += residual[c];
    }
    if (y == work) impl->encode(kv_tensor_row(n->out, item), y, cols);
    return KVANT_OK;
}

const kv_cpu_op kv_cpu_norm = {.op = &kv_op_norm,
                               .n_phases = 1,
                               .accepts = norm_accepts,
                               .prepare = norm_prepare,
                               .n_items = one_item_per_row,
                               .run = norm_run};

/* ---- glu ---- */

typedef struct glu_impl {
    kv_cpu_impl head;
    kv_glu_fn *glu;
    kv_encode_fn *encode;
} glu_impl;

static bool glu_accepts(const kv_node *n, unsigned cpu) {
    (void)cpu;
    return n->in[0]->dtype == KV_FLOAT && n->in[1]->dtype == KV_FLOAT;
}

static kv_status glu_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    const kv_glu_params *p = n->params;
    bool silu = p->act == KV_GLU_SILU;
    const kv_kernel *k = kv_kernel_pick(silu ? KV_ROLE_glu_silu : KV_ROLE_glu_gelu, NULL, NULL, NULL, cpu);
    glu_impl impl = {.head = {.kernel = k->name, .work_bytes = (size_t)n->out->cols * sizeof(float)},
                     .glu = silu ? k->glu_silu : k->glu_gelu,
                     .encode = kv_cpu_encoder(n->out->dtype, cpu)};
    return set_impl(n, arena, &impl, sizeof impl);
}

static kv_status glu_run(const kv_node *n, int32_t phase, int64_t item, void *work) {
    (void)phase;
    const glu_impl *impl = n->impl;
    impl->glu(work, kv_tensor_row(n->in[0], item), kv_tensor_row(n->in[1], item), n->out->cols);
    impl->encode(kv_tensor_row(n->out, item), work, n->out->cols);
    return KVANT_OK;
}

const kv_cpu_op kv_cpu_glu = {.op = &kv_op_glu,
                              .n_phases = 1,
                              .accepts = glu_accepts,
                              .prepare = glu_prepare,
                              .n_items = one_item_per_row,
                              .run = glu_run};

/* ---- rope_table ---- */

static kv_status rope_table_prepare(kv_node *n, unsigned cpu, kv_arena *arena) {
    (void)cpu;
    kv_cpu_impl impl = {.kernel = "rope_table"};
    return set_impl(n, arena, &impl, sizeof impl);
}

static int64_t rope_table_items(const kv_node *n, int32_t phase) {
    (void)phase;
    const kv_rope_table_params *p = n->params;
    return p->angles->n_tokens + p->angles->n_turns;
}

static kv_status rope_table_run(const kv_node *n, int32_t phase, int64_t item, void *work) {
    (void)phase, (void)work;
    const kv_rope_table_params *p = n->params;
    const kv_angles *a = p->angles;
    bool is_token = item < a->n_tokens;
    int64_t position = is_token ? a->stored[item] : a->turns[item - a->n_tokens];
    kv_rope_table_row(kv_tensor_row(n->out, item), p->rope, (double)position,
                      is_token ? p->rope->magnitude : 1);
    return KVANT_OK;
}

const kv_cpu_op kv_cpu_rope_table = {.op = &kv_op_rope_table,
                                     .n_phases = 1,
                                     .accepts = accept_all,
                                     .prepare = rope_table_prepare,
                                     .n_items = rope_table_items,
                                     .run = rope_table_run};
