/* layout_bed.c: stores and a sequence for trying out a layout. */
#include "engine/layout_bed.h"

#include "device/cpu/cpu_device.h"

#include <math.h>
#include <string.h>

enum { GAP = 5 }; /* unused cells before each run */

static void set_runs(kv_bed *b, int32_t n_used) {
    int32_t sizes[KV_BED_RUNS] = {n_used / 2, n_used / 4, n_used - n_used / 2 - n_used / 4}, cell = 0;
    int64_t pos = 0;
    for (int32_t i = 0; i < KV_BED_RUNS; i++) {
        cell += GAP;
        b->runs[i] = (kv_run){.first_cell = cell,
                              .n_cells = sizes[i],
                              .pos = pos,
                              .stored = pos + 30 * (i == 1),
                              .turn = i == 1 ? KV_BED_TOKENS : -1};
        cell += sizes[i];
        pos += sizes[i];
    }
    b->n_cells = cell + GAP;
    for (int32_t i = 0; i < KV_BED_TOKENS; i++) {
        b->pos[i] = pos - KV_BED_TOKENS + i;
        b->cells[i] = (i * 7 + 2) % b->n_cells;
    }
    b->seq = (kv_seq_view){.n_tokens = KV_BED_TOKENS, .n_runs = KV_BED_RUNS, .n_cells = n_used};
    b->batch = (kv_batch_view){.n_tokens = KV_BED_TOKENS,
                               .n_seqs = 1,
                               .pos = b->pos,
                               .cells = b->cells,
                               .seqs = &b->seq,
                               .runs = b->runs};
}

static void set_table(kv_bed *b) {
    for (int32_t i = 0; i < KV_BED_TOKENS; i++)
        kv_rope_table_row(kv_tensor_row(b->table, i), &b->rope, (double)b->pos[i], 1);
    kv_rope_table_row(kv_tensor_row(b->table, KV_BED_TOKENS), &b->rope, 30, 1);
}

kv_status kv_bed_open(kv_bed *b, int32_t dim, int32_t n_used, unsigned cpu, uint64_t seed) {
    *b = (kv_bed){.rope = {.n_rot = dim, .pairing = KV_ROPE_HALVES, .magnitude = 1, .freq = b->freq}};
    kv_rope_frequencies(b->freq, &(kv_rope_spec){.n_rot = dim, .base = 10000, .linear = 1});
    kv_random_init(&b->random, seed);
    set_runs(b, n_used);
    KV_TRY(kv_cpu_device_create(&b->device, 0, 1, cpu));
    b->table = kv_bed_floats(b, KV_BED_TOKENS + 1, dim);
    if (b->table) set_table(b);
    return b->table ? KVANT_OK : KVANT_NO_MEMORY;
}

void kv_bed_close(kv_bed *b) {
    kv_arena_clear(&b->arena);
    if (b->device) b->device->destroy(b->device);
    b->device = NULL;
}

kv_tensor *kv_bed_floats(kv_bed *b, int64_t rows, int64_t cols) {
    struct {
        kv_tensor tensor;
        kv_buffer buffer;
    } *t = kv_arena_alloc(&b->arena, 1, sizeof *t);
    float *numbers = kv_arena_alloc(&b->arena, (size_t)(rows * cols) + 16, sizeof *numbers);
    if (!t || !numbers) return NULL;
    for (int64_t i = 0; i < rows * cols; i++) numbers[i] = kv_random_normal(&b->random);
    t->buffer = (kv_buffer){
        .device = b->device, .bytes = (size_t)(rows * cols) * sizeof *numbers, .host = (uint8_t *)numbers};
    t->tensor = (kv_tensor){
        .dtype = KV_FLOAT, .layout = &kv_layout_rows, .rows = rows, .cols = cols, .buffer = &t->buffer};
    return &t->tensor;
}

/* ---- stores ---- */

static kv_status open_matrix(kv_tensor *t, kv_bed *b, const kv_dtype *d, const kv_layout *l, int64_t cols) {
    kv_buffer *buffer = kv_alloc(1, sizeof *buffer);
    *t = (kv_tensor){.dtype = d, .layout = l, .rows = b->n_cells, .cols = cols, .buffer = buffer};
    if (!buffer) return KVANT_NO_MEMORY;
    *buffer = (kv_buffer){.device = b->device, .bytes = kv_tensor_bytes(t)};
    buffer->host = kv_alloc_aligned(buffer->bytes, 1);
    if (!buffer->host) return KVANT_NO_MEMORY;
    memset(buffer->host, 0xff, buffer->bytes);
    return KVANT_OK;
}

kv_status kv_bed_store(kv_store *out, kv_bed *b, const kv_dtype *d, const kv_layout *l, int32_t dim,
                       bool rotated) {
    kv_head_code head = kv_head_code_of(d, dim, rotated);
    *out = (kv_store){.n_kv_heads = KV_BED_HEADS, .k_head = head, .v_head = head};
    KV_TRY(open_matrix(&out->k, b, d, l, KV_BED_HEADS * head.width));
    return open_matrix(&out->v, b, d, l, KV_BED_HEADS * head.width);
}

static void release_matrix(const kv_tensor *t) {
    if (t->buffer) kv_free(t->buffer->host);
    kv_free((void *)(uintptr_t)t->buffer);
}

void kv_bed_release(const kv_store *s) {
    release_matrix(&s->k);
    release_matrix(&s->v);
}

bool kv_bed_uses(const kv_bed *b, int32_t cell) {
    for (int32_t i = 0; i < KV_BED_RUNS; i++)
        if (cell >= b->runs[i].first_cell && cell < b->runs[i].first_cell + b->runs[i].n_cells) return true;
    return false;
}

static void put_row(const kv_tensor *t, const void *plain, int32_t cell) {
    kv_layout_pack(t->layout, t->dtype, t->cols, kv_tensor_data(t), plain, cell, 1);
}

static void fill_matrix(kv_bed *b, const kv_tensor *t, const kv_tensor *rows, float *numbers, void *plain,
                        uint8_t unused) {
    for (int32_t cell = 0; cell < b->n_cells; cell++) {
        if (kv_bed_uses(b, cell)) {
            for (int64_t i = 0; i < t->cols; i++) numbers[i] = kv_random_normal(&b->random);
            t->dtype->encode(plain, numbers, t->cols);
        } else {
            memset(plain, unused, kv_dtype_bytes(t->dtype, t->cols));
        }
        put_row(t, plain, cell);
        put_row(rows, plain, cell);
    }
}

kv_status kv_bed_fill(kv_bed *b, const kv_store *s, const kv_store *rows, uint8_t unused) {
    float *numbers = kv_alloc((size_t)s->k.cols, sizeof *numbers);
    void *plain = kv_alloc(1, kv_dtype_bytes(s->k.dtype, s->k.cols));
    bool room = numbers && plain;
    if (room) {
        fill_matrix(b, &s->k, &rows->k, numbers, plain, unused);
        fill_matrix(b, &s->v, &rows->v, numbers, plain, unused);
    }
    kv_free(numbers);
    kv_free(plain);
    return room ? KVANT_OK : KVANT_NO_MEMORY;
}

/* ---- ops ---- */

kv_attend_params kv_bed_attention(const kv_bed *b, const kv_store *s) {
    return (kv_attend_params){.rope = &b->rope,
                              .store = s,
                              .batch = &b->batch,
                              .n_heads = KV_BED_HEADS * KV_BED_GROUP,
                              .scale = (float)(1 / sqrt(s->k_head.dim))};
}

kv_cache_write_params kv_bed_writing(const kv_bed *b, kv_store *s) {
    return (kv_cache_write_params){&b->rope, s, &b->batch};
}
