/* layout.h: where the coded blocks of a matrix lie in memory. A layout is a permutation of bytes described by
 * data, with one address function for all dtypes. It knows nothing of what the numbers mean: a row may be a
 * row of weights or a cell of a KV cache.
 *
 * A tile of `tile` rows is stored block by block; inside a block, plane by plane. A small plane (a scale, the
 * high bits of a block: at most 4 bytes) is stored whole, row after row. In a larger one, `group` rows at a
 * time take turns of `chunk` bytes (or of the common divisor, where that does not divide the plane):
 *
 *     tile 0: block 0: small plane:  [row 0][row 1] ... [row tile-1]
 *                      large plane:  rows 0 .. group-1:       [row 0, bytes 0..c) [row 1, bytes 0..c) ...
 *                                                             [row 0, bytes c..2c) ...
 *                                    rows group .. 2 group-1: ...
 *             block 1: ...
 *
 * tile = 1 is the plain layout `rows`. The last tile is padded; padding holds zero bytes. */
#pragma once

#include "base/status.h"
#include "dtype/dtype.h"

enum { KV_MAX_TILE = 64, KV_SMALL_PLANE = 4, KV_MAX_OUTSIDE_LAYOUTS = 16, KV_LAYOUT_NAME_BYTES = 32 };

typedef struct kv_layout {
    const char *name;
    int32_t tile;  /* rows that lie together, at most KV_MAX_TILE */
    int32_t group; /* of them take turns; divides tile */
    int32_t chunk; /* bytes of one row's turn */
} kv_layout;

#define KV_LAYOUT(name) extern const kv_layout kv_layout_##name;
#include "layout/layouts.inc"
#undef KV_LAYOUT

/* Those of layouts.inc, then those from outside in the order in which they were added. */
int32_t kv_layout_count(void);
const kv_layout *kv_layout_at(int32_t i);
const kv_layout *kv_layout_by_name(const char *name);

/* What is wrong with a description: KVANT_INVALID with the value and the limit. Tiles divide KV_MAX_TILE, the
 * cells of a page, so that a tile never straddles two of them. */
kv_status kv_layout_check(const kv_layout *l);
/* Adds a copy of a layout that comes from outside, for the rest of the process: its name must be new. Where
 * several threads add layouts, the caller sees to it that they take turns; readers need not wait. */
kv_status kv_layout_add(const kv_layout **out, const kv_layout *l);

/* Bytes of one tile of rows of `cols` numbers, and of a whole matrix. */
size_t kv_layout_tile_bytes(const kv_layout *l, const kv_dtype *d, int64_t cols);
size_t kv_layout_bytes(const kv_layout *l, const kv_dtype *d, int64_t rows, int64_t cols);

/* The address function: byte `byte` of plane `plane` of block `block` of row `row`, relative to the matrix.
 */
size_t kv_layout_locate(const kv_layout *l, const kv_dtype *d, int64_t cols, int64_t row, int64_t block,
                        int32_t plane, int32_t byte);

/* Rows [first, first + n) between plain rows at `plain` (the first of them at its start) and the matrix.
 * Exact inverses of each other. */
void kv_layout_pack(const kv_layout *l, const kv_dtype *d, int64_t cols, void *matrix, const void *plain,
                    int64_t first, int64_t n);
void kv_layout_unpack(const kv_layout *l, const kv_dtype *d, int64_t cols, void *plain, const void *matrix,
                      int64_t first, int64_t n);
/* Blocks [first_block, first_block + n_blocks) of one row. */
void kv_layout_unpack_blocks(const kv_layout *l, const kv_dtype *d, int64_t cols, void *plain,
                             const void *matrix, int64_t row, int64_t first_block, int64_t n_blocks);
void kv_layout_pack_blocks(const kv_layout *l, const kv_dtype *d, int64_t cols, void *matrix,
                           const void *plain, int64_t row, int64_t first_block, int64_t n_blocks);
