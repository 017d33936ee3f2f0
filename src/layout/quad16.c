/* quad16: 16 rows a tile in quads of 4, which take turns byte by byte. For values that are accumulated over
 * cells with 4-way integer dot products: the four bytes of a lane are one dimension of four cells. For q8_0
 * (a 2-byte scale, 32 bytes of quants):
 *
 *     block 0: [scale r0][scale r1] ... [scale r15]                                32 bytes
 *              [r0 b0][r1 b0][r2 b0][r3 b0] [r0 b1][r1 b1] ... [r3 b31]           128 bytes: rows 0-3
 *              [r4 b0][r5 b0] ...                                            3 x 128 bytes: rows 4-15
 *     block 1: ...
 */
#include "layout/layout.h"

const kv_layout kv_layout_quad16 = {.name = "quad16", .tile = 16, .group = 4, .chunk = 1};
