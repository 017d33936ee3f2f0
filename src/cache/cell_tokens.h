/* cell_tokens.h: the token that each cell was made from. It stays with the cell (of group 0, which has all
 * that a sequence consists of), so that what a sequence holds can be compared with a prompt and saved. -1:
 * never noted. */
#pragma once

#include "cache/cache.h"
#include "cache/cells.h"

/* Those of the last append, in its order. */
void kv_cache_note_tokens(kv_cache *c, const int32_t *tokens);
/* Of all cells of a sequence, as many as kv_cache_tokens says, by position. */
void kv_cache_read_tokens(const kv_cache *c, int32_t seq, int32_t *tokens);
void kv_cache_write_tokens(kv_cache *c, int32_t seq, const int32_t *tokens);

/* Which cells of a group are in use, and their tokens: cache.c. */
kv_cells *kv_cache_cells(const kv_cache *c, int32_t group);
