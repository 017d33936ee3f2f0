/* kvant_ext.h: extending kvant from outside. A program that links libkvant describes a memory layout for the
 * KV cache in one struct and registers it; from then on sessions may ask for it by name, and every operation
 * (writing, reading, attention, shifts, copies, saving, moving between devices) works on it.
 *
 * What a layout is. The cache of a layer is a matrix: a row is the keys (or the values) of one token, a cell.
 * A row is coded in blocks, e.g. 32 numbers as one q8_0 block, and a block consists of planes: first its
 * scale, then its 32 quants. A layout says where these bytes lie in memory, and nothing else: it is a
 * permutation, so that no operation but the fastest kernels need to know about it.
 *
 *     plain rows, one after the other          tile 2, group 2, chunk 8 (of q8_0: planes of 2 and 32 bytes)
 *
 *     cell 0: [s][q0 ........ q31][s][q0 ..    cells 0 and 1 are a tile. It is stored block by block; a block
 *     cell 1: [s][q0 ........ q31][s][q0 ..    plane by plane; in a plane the cells take turns of 8 bytes:
 *     cell 2: ...
 *                                              block 0: [s of cell 0][s of cell 1]
 *                                                       [q0-7 of cell 0][q0-7 of cell 1]
 *                                                       [q8-15 of cell 0][q8-15 of cell 1] ...
 *                                              block 1: ...
 *
 * - `tile` cells lie together. It divides 64, the cells of a page, so a tile never straddles two pages.
 * - `group` of them take turns; it divides tile. In a tile of 16 in groups of 4, a plane has cells 0 to 3
 *   taking turns, then cells 4 to 7, and so on.
 * - `chunk` is the bytes of one turn. Where it does not divide the plane, turns have as many bytes as divide
 *   both (their greatest common divisor): with chunk 4, a plane of 6 bytes goes in turns of 2.
 * - A plane of at most 4 bytes (a scale) is never cut: cell after cell of the tile.
 *
 * tile = 1 is plain rows. The layouts that are built in are described in the same way: "rows" (1, 1, 1),
 * "tile16x4" (16, 16, 4), "quad16" (16, 4, 1).
 *
 * docs/adding-a-layout.md walks through an example; examples/custom_layout/ has it as a program; `kvant
 * check-layout FILE.so` tests and times one.
 */
#ifndef KVANT_EXT_H
#define KVANT_EXT_H

#include "kvant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What kernels are called with, and what is asked of them, as this header says it. */
#define KVANT_EXT_VERSION 1

/* The scores of some queries with the keys of one head:
 *
 *     scores[i * scores_step + c] = sum over d of queries[i * head_dim + d] * key of cell c [d]
 *
 * Every cell of [0, n_cells) is written, or read, in whole tiles: cells that hold no token may contain any
 * bytes, NaN included, and what comes out for them is ignored. */
typedef struct kvant_score_args {
    size_t size;
    float *scores;
    size_t scores_step;   /* at least n_cells rounded up to 16; numbers up to there may be written */
    const float *queries; /* n_queries x head_dim, contiguous, aligned to 64 bytes */
    int32_t n_queries;    /* at least 1 */
    int32_t head_dim;     /* numbers of a coded head: whole blocks */
    /* The head's part of the first tile: head_dim / (numbers of a block) blocks of `tile` cells. Not aligned
     * to anything. */
    const void *keys;
    size_t tile_bytes; /* from a tile to the next */
    int32_t n_cells;   /* a multiple of tile, at most 64 */
    const char *type;  /* of the keys: "q8_0" */
} kvant_score_args;
typedef void kvant_score_fn(const kvant_score_args *args);

/* Values of one head, weighted and added:
 *
 *     sums[i * head_dim + d] += sum over c of weights[i * weights_step + c] * value of cell c [d]
 *
 * A weight that is exactly 0 skips its cell, whose bytes may then be anything, NaN included. */
typedef struct kvant_accumulate_args {
    size_t size;
    float *sums; /* n_queries x head_dim, contiguous, aligned to 64 bytes */
    const float *weights;
    size_t weights_step; /* at least n_cells */
    int32_t n_queries, head_dim;
    const void *values; /* as keys above */
    size_t tile_bytes;
    int32_t n_cells;
    const char *type;
} kvant_accumulate_args;
typedef void kvant_accumulate_fn(const kvant_accumulate_args *args);

/* Own kernels for one type of keys and values ("f32" "f16" "q8_0" ..., any that a cache can have). Either may
 * be NULL. A kernel is called from several threads at once: it reads its arguments, writes its result and
 * knows nothing else. Numbers are to be summed in f32 at least. */
typedef struct kvant_layout_kernel {
    size_t size;
    const char *type;
    kvant_score_fn *score;
    kvant_accumulate_fn *accumulate;
} kvant_layout_kernel;
#define KVANT_LAYOUT_KERNEL_INIT KVANT_ZERO_OF_SIZE(kvant_layout_kernel)

typedef struct kvant_layout_desc {
    size_t size;
    int32_t version;  /* KVANT_EXT_VERSION */
    const char *name; /* at most 31 letters, digits and _ . -; not one that exists */
    int32_t tile, group, chunk;
    /* For types without a kernel here, and without any kernels at all, cells are decoded first: slower, and
     * as right. */
    const kvant_layout_kernel *kernels;
    int32_t n_kernels; /* at most one for each type */
} kvant_layout_desc;
#ifdef __cplusplus
#define KVANT_LAYOUT_DESC_INIT \
    { sizeof(kvant_layout_desc), KVANT_EXT_VERSION, NULL, 1, 1, 1, NULL, 0 }
#else
#define KVANT_LAYOUT_DESC_INIT \
    { .size = sizeof(kvant_layout_desc), .version = KVANT_EXT_VERSION, .tile = 1, .group = 1, .chunk = 1 }
#endif

/* Adds a layout for the rest of the process: sessions that are created afterwards may name it in `layout_k`
 * and `layout_v`. The description is copied; kernels must stay loaded. Registering is for the start of a
 * program: one thread at a time, before sessions that use the layout. KVANT_INVALID says which value is
 * outside of which limit, and nothing has changed then. There is room for 16 layouts with 32 kernels. */
KVANT_API KVANT_MUST_USE kvant_status kvant_register_layout(const kvant_layout_desc *layout);

/* A shared object that is given to `kvant check-layout` has its description under this name:
 *
 *     KVANT_API const kvant_layout_desc kvant_layout = {...};
 */
#define KVANT_LAYOUT_SYMBOL "kvant_layout"

#ifdef __cplusplus
}
#endif
#endif
