/* layout.c: the registry and the address arithmetic shared by all layouts. pack and unpack walk planes in
 * chunks, with the common chunk sizes as fixed-size copies: a model is packed at the speed of memory when it
 * is loaded. */
#include "layout/layout.h"

#include <stdatomic.h>
#include <string.h>

/* ---- the registry ---- */

static const kv_layout *const registry[] = {
#define KV_LAYOUT(name) &kv_layout_##name,
#include "layout/layouts.inc"
#undef KV_LAYOUT
};
enum { N_BUILT_IN = sizeof registry / sizeof *registry };

/* From outside: written before the count says so, never changed afterwards. */
static struct {
    kv_layout layout;
    char name[KV_LAYOUT_NAME_BYTES];
} outside[KV_MAX_OUTSIDE_LAYOUTS];
static atomic_int n_outside;

int32_t kv_layout_count(void) { return N_BUILT_IN + atomic_load_explicit(&n_outside, memory_order_acquire); }

const kv_layout *kv_layout_at(int32_t i) {
    return i < N_BUILT_IN ? registry[i] : &outside[i - N_BUILT_IN].layout;
}

const kv_layout *kv_layout_by_name(const char *name) {
    for (int32_t i = 0; i < kv_layout_count(); i++)
        if (strcmp(kv_layout_at(i)->name, name) == 0) return kv_layout_at(i);
    return NULL;
}

static kv_status check_name(const char *name) {
    static const char *const legal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    if (!name || !*name) return kv_fail(KVANT_INVALID, "a layout without a name");
    if (strnlen(name, KV_LAYOUT_NAME_BYTES) == KV_LAYOUT_NAME_BYTES)
        return kv_fail(KVANT_INVALID, "layout \"%.*s...\": a name has at most %d bytes",
                       KV_LAYOUT_NAME_BYTES - 1, name, KV_LAYOUT_NAME_BYTES - 1);
    if (name[strspn(name, legal)])
        return kv_fail(KVANT_INVALID, "layout \"%s\": a name has letters, digits and _ . - only", name);
    return KVANT_OK;
}

kv_status kv_layout_check(const kv_layout *l) {
    KV_TRY(check_name(l->name));
    if (l->tile < 1 || l->tile > KV_MAX_TILE || KV_MAX_TILE % l->tile)
        return kv_fail(KVANT_INVALID, "layout %s: a tile of %d rows, must divide %d", l->name, l->tile,
                       KV_MAX_TILE);
    if (l->group < 1 || l->tile % l->group)
        return kv_fail(KVANT_INVALID, "layout %s: groups of %d rows, must divide the tile of %d", l->name,
                       l->group, l->tile);
    if (l->chunk < 1)
        return kv_fail(KVANT_INVALID, "layout %s: turns of %d bytes, must be at least 1", l->name, l->chunk);
    return KVANT_OK;
}

kv_status kv_layout_add(const kv_layout **out, const kv_layout *l) {
    int n = atomic_load_explicit(&n_outside, memory_order_relaxed);
    KV_TRY(kv_layout_check(l));
    if (kv_layout_by_name(l->name))
        return kv_fail(KVANT_INVALID, "layout %s: there is one of that name", l->name);
    if (n == KV_MAX_OUTSIDE_LAYOUTS)
        return kv_fail(KVANT_INVALID, "layout %s: there are %d from outside already", l->name,
                       KV_MAX_OUTSIDE_LAYOUTS);
    memcpy(outside[n].name, l->name, strlen(l->name) + 1);
    outside[n].layout = *l;
    outside[n].layout.name = outside[n].name;
    *out = &outside[n].layout;
    atomic_store_explicit(&n_outside, n + 1, memory_order_release);
    return KVANT_OK;
}

/* ---- addresses ---- */

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
    case 8: copy_turns(tile, plain, 8, n, step, to_tile); break;
    default: copy_turns(tile, plain, turn, n, step, to_tile); break;
    }
}

/* How one row lies in a plane: `n` turns of `turn` bytes, `step` apart, from `offset` on. */
typedef struct lane_turns {
    size_t offset, turn, n, step;
} lane_turns;

static lane_turns lane_turns_of(const kv_layout *l, int32_t plane_bytes, size_t lane) {
    turns t = turns_of(l, plane_bytes);
    return (lane_turns){lane_offset(t, lane, (size_t)plane_bytes), t.bytes, (size_t)plane_bytes / t.bytes,
                        t.bytes * t.rows};
}

/* `n` blocks of a row from `first` on. */
static void copy_blocks(const kv_layout *l, const kv_dtype *d, int64_t cols, uint8_t *matrix, uint8_t *plain,
                        int64_t row, int64_t first, int64_t n, bool to_tile) {
    size_t tile = (size_t)l->tile;
    lane_turns of[KV_MAX_PLANES];
    for (int32_t p = 0; p < d->n_planes; p++)
        of[p] = lane_turns_of(l, d->plane_bytes[p], (size_t)(row % l->tile));
    uint8_t *plane = matrix + (size_t)(row / l->tile) * kv_layout_tile_bytes(l, d, cols);
    plane += (size_t)first * (size_t)d->block_bytes * tile;
    for (int64_t b = 0; b < n; b++)
        for (int32_t p = 0; p < d->n_planes; p++) {
            copy_plane(plane + of[p].offset, plain, of[p].turn, of[p].n, of[p].step, to_tile);
            plane += (size_t)d->plane_bytes[p] * tile;
            plain += d->plane_bytes[p];
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

void kv_layout_pack_blocks(const kv_layout *l, const kv_dtype *d, int64_t cols, void *matrix,
                           const void *plain, int64_t row, int64_t first_block, int64_t n_blocks) {
    if (l->tile == 1) {
        size_t at = (size_t)row * kv_dtype_bytes(d, cols) + (size_t)first_block * (size_t)d->block_bytes;
        memcpy((uint8_t *)matrix + at, plain, (size_t)n_blocks * (size_t)d->block_bytes);
        return;
    }
    copy_blocks(l, d, cols, matrix, (uint8_t *)plain, row, first_block, n_blocks, true);
}
