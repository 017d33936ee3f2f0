/* tile16x4: 16 rows side by side, 4 bytes each in turn, for kernels whose vector lanes are rows: a 64-byte
 * load is one step of a 4-way integer dot product for 16 rows, scales of 16 rows lie together, and no lane is
 * ever summed with its neighbour. For q4_0 (a 2-byte scale, 16 bytes of nibbles):
 *
 *     block 0: [scale r0][scale r1] ... [scale r15]           32 bytes
 *              [r0 b0-3][r1 b0-3] ... [r15 b0-3]              64 bytes: elements 0-3 (low) and 16-19 (high
 * nibbles) [r0 b4-7] ...                                  3 x 64 bytes block 1: ...
 */
#include "layout/layout.h"

const kv_layout kv_layout_tile16x4 = {.name = "tile16x4", .tile = 16, .group = 16, .chunk = 4};
