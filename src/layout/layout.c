/* layout.c: the registry and the address arithmetic shared by all layouts. pack and unpack walk planes in
 * chunks, with the common chunk sizes as fixed-size copies: a model is packed at the speed of memory when it
 * is loaded. */
#include "layout/layout.h"

#include <string.h>

static const kv_layout *const registry[] = {
#define KV_LAYOUT(name) &kv_layout_##name,
#include "layout/layouts.inc"
#undef KV_LAYOUT
};

int32_t kv_layout_count(void) { return (int32_t)(sizeof registry / sizeof *registry); }

const kv_layout *kv_layout_at(int32_t i) { return registry[i]; }

const kv_layout *kv_layout_by_name(const char *name) {
    for (int32_t i = 0; i < kv_layout_count(); i++)
        if (strcmp(registry[i]->name, name) == 0) return registry[i];
    return NULL;
}

size_t kv_layout_tile_bytes(const kv_layout *l, const kv_dtype *d, int64_t cols) {
    return kv_dtype_bytes(d, cols) * (size_t)l->tile;
}

size_t kv_layout_bytes(const kv_layout *l, const kv_dtype *d, int64_t rows, int64_t cols) {
    size_t tiles = (size_t)((rows + l->tile - 1) / l->tile);
    return tiles * kv_layout_tile_bytes(l, d, cols);
}

/* Bytes of one turn in a plane: gcd(chunk, plane bytes). */
static int32_t turn_bytes(const kv_layout *l, int32_t plane_bytes) {
    int32_t a = l->chunk ? l->chunk : plane_bytes, b = plane_bytes;
    while (b) {
        int32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

size_t kv_layout_locate(const kv_layout *l, const kv_dtype *d, int64_t cols, int64_t row, int64_t block,
                        int32_t plane, int32_t byte) {
    size_t at = (size_t)(row / l->tile) * kv_layout_tile_bytes(l, d, cols);
    at += (size_t)block * (size_t)d->block_bytes * (size_t)l->tile;
    for (int32_t p = 0; p < plane; p++) at += (size_t)d->plane_bytes[p] * (size_t)l->tile;
    int32_t turn = turn_bytes(l, d->plane_bytes[plane]);
    at += (size_t)(byte / turn) * (size_t)turn * (size_t)l->tile;
    return at + (size_t)(row % l->tile) * (size_t)turn + (size_t)(byte % turn);
}

/* Copies `n` turns between a plane of a plain block (packed) and one lane of a tile (`step` bytes apart). */
static inline void copy_turns(uint8_t *tile, uint8_t *plain, int32_t turn, int32_t n, size_t step,
                              bool to_tile) {
    for (int32_t i = 0; i < n; i++) {
        uint8_t *a = tile + (size_t)i * step, *b = plain + (size_t)i * (size_t)turn;
        if (to_tile)
            memcpy(a, b, (size_t)turn);
        else
            memcpy(b, a, (size_t)turn);
    }
}

static void copy_plane(uint8_t *tile, uint8_t *plain, int32_t turn, int32_t n, size_t step, bool to_tile) {
    switch (turn) { /* let the compiler see the common sizes */
    case 1: copy_turns(tile, plain, 1, n, step, to_tile); break;
    case 2: copy_turns(tile, plain, 2, n, step, to_tile); break;
    case 4: copy_turns(tile, plain, 4, n, step, to_tile); break;
    default: copy_turns(tile, plain, turn, n, step, to_tile); break;
    }
}

static void copy_row(const kv_layout *l, const kv_dtype *d, int64_t cols, uint8_t *matrix, uint8_t *plain,
                     int64_t row, bool to_tile) {
    size_t lane = (size_t)(row % l->tile), tile = (size_t)l->tile;
    uint8_t *block = matrix + (size_t)(row / l->tile) * kv_layout_tile_bytes(l, d, cols);
    for (int64_t b = 0; b < cols / d->block_elems; b++, block += (size_t)d->block_bytes * tile) {
        uint8_t *plane = block;
        for (int32_t p = 0; p < d->n_planes; p++) {
            int32_t bytes = d->plane_bytes[p], turn = turn_bytes(l, bytes);
            copy_plane(plane + lane * (size_t)turn, plain, turn, bytes / turn, (size_t)turn * tile, to_tile);
            plane += (size_t)bytes * tile;
            plain += bytes;
        }
    }
}

static void copy_rows(const kv_layout *l, const kv_dtype *d, int64_t cols, uint8_t *matrix, uint8_t *plain,
                      int64_t first, int64_t n, bool to_tile) {
    size_t row_bytes = kv_dtype_bytes(d, cols);
    if (l->tile == 1) {
        uint8_t *rows = matrix + (size_t)first * row_bytes;
        if (to_tile)
            memcpy(rows, plain, (size_t)n * row_bytes);
        else
            memcpy(plain, rows, (size_t)n * row_bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        copy_row(l, d, cols, matrix, plain + (size_t)i * row_bytes, first + i, to_tile);
}

void kv_layout_pack(const kv_layout *l, const kv_dtype *d, int64_t cols, void *matrix, const void *plain,
                    int64_t first, int64_t n) {
    copy_rows(l, d, cols, matrix, (uint8_t *)plain, first, n, true);
}

void kv_layout_unpack(const kv_layout *l, const kv_dtype *d, int64_t cols, void *plain, const void *matrix,
                      int64_t first, int64_t n) {
    copy_rows(l, d, cols, (uint8_t *)matrix, plain, first, n, false);
}
