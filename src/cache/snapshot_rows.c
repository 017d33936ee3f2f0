/* snapshot_rows.c: where the host does not reach a store, whole tiles go through memory of its own. */
#include "cache/snapshot_rows.h"

/* The tiles that hold rows [first, first + n), and the first of their rows. */
static kv_range tiles_of(const kv_tensor *t, int64_t first, int64_t n, int64_t *first_row) {
    int64_t tile = t->layout->tile, begin = first / tile, end = (first + n + tile - 1) / tile;
    size_t bytes = kv_layout_tile_bytes(t->layout, t->dtype, t->cols);
    *first_row = begin * tile;
    return (kv_range){t->buffer, t->offset + (size_t)begin * bytes, (size_t)(end - begin) * bytes};
}

size_t kv_rows_staging(const kv_tensor *t) {
    if (t->buffer->host) return 0;
    int64_t tiles = KV_SNAPSHOT_ROWS / t->layout->tile + 2; /* one more at either end */
    return (size_t)tiles * kv_layout_tile_bytes(t->layout, t->dtype, t->cols);
}

kv_status kv_rows_read(void *plain, const kv_tensor *t, int64_t first, int64_t n, void *staging) {
    int64_t first_row = 0;
    const void *matrix = staging;
    if (t->buffer->host) {
        matrix = kv_tensor_data(t);
    } else {
        kv_range tiles = tiles_of(t, first, n, &first_row);
        KV_TRY(t->buffer->device->download(staging, tiles));
    }
    kv_layout_unpack(t->layout, t->dtype, t->cols, plain, matrix, first - first_row, n);
    return KVANT_OK;
}

kv_status kv_rows_write(const kv_tensor *t, const void *plain, int64_t first, int64_t n, void *staging) {
    if (t->buffer->host) {
        kv_layout_pack(t->layout, t->dtype, t->cols, kv_tensor_data(t), plain, first, n);
        return KVANT_OK;
    }
    int64_t first_row;
    kv_range tiles = tiles_of(t, first, n, &first_row);
    KV_TRY(t->buffer->device->download(staging, tiles)); /* neighbours in the same tiles stay */
    kv_layout_pack(t->layout, t->dtype, t->cols, staging, plain, first - first_row, n);
    return t->buffer->device->upload(tiles, staging);
}
