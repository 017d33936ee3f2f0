/* rows: the plain layout. One row after the other, its blocks in order:
 *
 *     row 0: [block 0][block 1] ... [block n-1]
 *     row 1: [block 0] ...
 */
#include "layout/layout.h"

const kv_layout kv_layout_rows = {.name = "rows", .tile = 1, .group = 1, .chunk = 1};
