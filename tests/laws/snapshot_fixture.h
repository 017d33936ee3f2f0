/* snapshot_fixture.h: sessions that code their cells in any way, files in a folder of their own, and stores
 * compared cell by cell. */
#pragma once

#include "cache/snapshot_rows.h"
#include "engine/engine.h"
#include "small_session.h"

#include <unistd.h>

/* How a cache codes: what may differ between where a sequence was saved and where it is restored. */
typedef struct coding {
    const char *type_k, *type_v, *layout;
    kvant_rotation rotation;
    kvant_centre centre; /* AUTO: where the model adds biases to its keys */
    int32_t margin;      /* behind windows; 0: the session's own */
} coding;

static inline kvant_session *open_coded(kvant_model *model, const coding *c, int32_t n_ctx,
                                        int32_t n_sequences) {
    kvant_session *session = NULL;
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.n_ctx = n_ctx;
    o.n_sequences = n_sequences;
    o.type_k = c->type_k;
    o.type_v = c->type_v;
    o.layout_k = o.layout_v = c->layout;
    o.rotation = c->rotation;
    o.centre = c->centre;
    o.window_margin = c->margin;
    if (c->margin > 0) o.n_batch = 16; /* or windows would have room for all there is */
    o.act = KVANT_ACT_F32;
    assert_ok(kvant_session_create(&session, model, &o));
    return session;
}

/* ---- files ---- */

static char snapshot_folder[64], snapshot_path[96];

static inline int open_folder(void **state) {
    (void)state;
    strcpy(snapshot_folder, "/tmp/kvant-snapshot-XXXXXX");
    if (!mkdtemp(snapshot_folder)) return -1;
    snprintf(snapshot_path, sizeof snapshot_path, "%s/file", snapshot_folder);
    return 0;
}

static inline int close_folder(void **state) {
    (void)state;
    unlink(snapshot_path);
    return rmdir(snapshot_folder); /* fails if a temporary file was left behind */
}

/* Owned by the caller (free). */
static inline uint8_t *read_file(size_t *n) {
    FILE *file = fopen(snapshot_path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *n = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*n);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, file), *n);
    fclose(file);
    return bytes;
}

static inline void write_file(const uint8_t *bytes, size_t n) {
    FILE *file = fopen(snapshot_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

/* ---- cells ---- */

/* All coded rows of a sequence, layer by layer, in order of position. Owned by the caller (free). */
static inline uint8_t *copy_rows(const kvant_session *s, int32_t seq, size_t *n_bytes) {
    uint8_t *rows = NULL;
    *n_bytes = 0;
    for (int32_t layer = 0; layer < s->model->model.hparams.n_layers; layer++) {
        const kv_store *store = kv_cache_store(s->cache, layer);
        kv_span_list spans = kv_cache_spans(s->cache, kv_cache_group(s->cache, layer), seq);
        const kv_tensor *tensors[] = {&store->k, &store->v};
        for (int t = 0; t < 2; t++)
            for (size_t i = 0; i < spans.count; i++)
                for (int32_t k = 0; !kv_span_released(&spans.at[i]) && k < spans.at[i].n_cells; k++) {
                    size_t row = kv_dtype_bytes(tensors[t]->dtype, tensors[t]->cols);
                    rows = realloc(rows, *n_bytes + row);
                    assert_non_null(rows);
                    assert_ok(kv_rows_read(rows + *n_bytes, tensors[t], spans.at[i].first_cell + k, 1, NULL));
                    *n_bytes += row;
                }
    }
    return rows;
}

static inline bool same_rows(const kvant_session *a, int32_t seq_a, const kvant_session *b, int32_t seq_b) {
    size_t n_a, n_b;
    uint8_t *x = copy_rows(a, seq_a, &n_a), *y = copy_rows(b, seq_b, &n_b);
    bool same = n_a == n_b && (!n_a || memcmp(x, y, n_a) == 0);
    free(x);
    free(y);
    return same;
}

/* Sequences of two in four, token by token, the odd ones cleared: every second cell is free. */
static inline void make_holes(kvant_session *s, int32_t n, int32_t seq_a, int32_t seq_b) {
    for (int32_t i = 0; i < n; i++) {
        eval_some(s, seq_a, 900 + i, 1);
        eval_some(s, seq_b, 1900 + i, 1);
    }
    assert_ok(kvant_seq_clear(s, seq_b));
}
