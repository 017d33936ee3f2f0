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

/* How the rows of a tile share a plane. */
typedef struct turns {
    size_t bytes; /* of a turn: gcd(chunk, plane bytes), or the whole of a small plane */
    size_t rows;  /* that take turns */
} turns;

static turns turns_of(const kv_layout *l, int32_t plane_bytes) {
    if (plane_bytes <= KV_SMALL_PLANE) return (turns){(size_t)plane_bytes, (size_t)l->tile};
    int32_t a = l->chunk, b = plane_bytes;
    while (b) {
        int32_t rest = a % b;
        a = b;
        b = rest;
    }
    return (turns){(size_t)a, (size_t)l->group};
}

/* Where byte 0 of a row's share of a plane lies, from the start of the tile's plane. */
static size_t lane_offset(turns t, size_t lane, size_t plane_bytes) {
    return lane / t.rows * t.rows * plane_bytes + lane % t.rows * t.bytes;
}

size_t kv_layout_locate(const kv_layout *l, const kv_dtype *d, int64_t cols, int64_t row, int64_t block,
                        int32_t plane, int32_t byte) {
    size_t at = (size_t)(row / l->tile) * kv_layout_tile_bytes(l, d, cols);
    at += (size_t)block * (size_t)d->block_bytes * (size_t)l->tile;
    for (int32_t p = 0; p < plane; p++) at += (size_t)d->plane_bytes[p] * (size_t)l->tile;
    turns t = turns_of(l, d->plane_bytes[plane]);
    at += lane_offset(t, (size_t)(row % l->tile), (size_t)d->plane_bytes[plane]);
    return at + (size_t)byte / t.bytes * t.bytes * t.rows + (size_t)byte % t.bytes;
}

/* Copies `n` turns between a plane of a plain block (packed) and one lane of a tile (`step` bytes apart). */
static inline void copy_turns(uint8_t *tile, uint8_t *plain, size_t turn, size_t n, size_t step,
                              bool to_tile) {
    for (size_t i = 0; i < n; i++) {
        uint8_t *a = tile + i * step, *b = plain + i * turn;
        if (to_tile)
            memcpy(a, b, turn);
        else
            memcpy(b, a, turn);
    }
}

static void copy_plane(uint8_t *tile, uint8_t *plain, size_t turn, size_t n, size_t step, bool to_tile) {
    switch (turn) { /* let the compiler see the common sizes */
    case 1: copy_turns(tile, plain, 1, n, step, to_tile); break;
    case 2: copy_turns(tile, plain, 2, n, step, to_tile); break;
    case 4: copy_turns(tile, plain, 4, n, step, to_tile); break;
    default: copy_turns(tile, plain, turn, n, step, to_tile); break;
    }
}

/* `n` blocks of a row from `first` on. */
static void copy_blocks(const kv_layout *l, const kv_dtype *d, int64_t cols, uint8_t *matrix, uint8_t *plain,
                        int64_t row, int64_t first, int64_t n, bool to_tile) {
    size_t lane = (size_t)(row % l->tile), tile = (size_t)l->tile;
    uint8_t *block = matrix + (size_t)(row / l->tile) * kv_layout_tile_bytes(l, d, cols);
    block += (size_t)first * (size_t)d->block_bytes * tile;
    for (int64_t b = 0; b < n; b++, block += (size_t)d->block_bytes * tile) {
        uint8_t *plane = block;
        for (int32_t p = 0; p < d->n_planes; p++) {
            size_t bytes = (size_t)d->plane_bytes[p];
            turns t = turns_of(l, d->plane_bytes[p]);
            copy_plane(plane + lane_offset(t, lane, bytes), plain, t.bytes, bytes / t.bytes, t.bytes * t.rows,
                       to_tile);
            plane += bytes * tile;
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
        copy_blocks(l, d, cols, matrix, plain + (size_t)i * row_bytes, first + i, 0, cols / d->block_elems,
                    to_tile);
}

void kv_layout_pack(const kv_layout *l, const kv_dtype *d, int64_t cols, void *matrix, const void *plain,
                    int64_t first, int64_t n) {
    copy_rows(l, d, cols, matrix, (uint8_t *)plain, first, n, true);
}

void kv_layout_unpack(const kv_layout *l, const kv_dtype *d, int64_t cols, void *plain, const void *matrix,
                      int64_t first, int64_t n) {
    copy_rows(l, d, cols, (uint8_t *)matrix, plain, first, n, false);
}

void kv_layout_unpack_blocks(const kv_layout *l, const kv_dtype *d, int64_t cols, void *plain,
                             const void *matrix, int64_t row, int64_t first_block, int64_t n_blocks) {
    if (l->tile == 1) {
        size_t at = (size_t)row * kv_dtype_bytes(d, cols) + (size_t)first_block * (size_t)d->block_bytes;
        memcpy(plain, (const uint8_t *)matrix + at, (size_t)n_blocks * (size_t)d->block_bytes);
        return;
    }
    copy_blocks(l, d, cols, (uint8_t *)matrix, plain, row, first_block, n_blocks, false);
}
