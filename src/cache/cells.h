/* cells.h: which cells are in use, by how many sequences, and where the next one should come from. */
#pragma once

#include "base/memory.h"
#include "base/status.h"

typedef struct kv_cells {
    int32_t n_cells, n_free, page_cells;
    uint32_t *refs;     /* of each cell */
    int32_t *page_used; /* cells in use of each page */
    int32_t *tokens;    /* of each cell: cell_tokens.h */
    int32_t cursor;     /* page where the search for a free one begins */
} kv_cells;

kv_status kv_cells_init(kv_cells *c, int32_t n_cells, int32_t page_cells);
void kv_cells_clear(kv_cells *c);
/* Takes a free cell (n_free > 0): `wish` if that is free and inside its page, else the first of an empty
 * page, else any. */
int32_t kv_cells_take(kv_cells *c, int32_t wish);
void kv_cells_share(kv_cells *c, int32_t first, int32_t n);
void kv_cells_drop(kv_cells *c, int32_t first, int32_t n);
