#include "cache/cell_tokens.h"

#include <string.h>

void kv_cache_note_tokens(kv_cache *c, const int32_t *tokens) {
    const kv_batch_view *batch = kv_cache_batch(c, 0);
    int32_t *noted = kv_cache_cells(c, 0)->tokens;
    for (int32_t i = 0; i < batch->n_tokens; i++) noted[batch->cells[i]] = tokens[i];
}

void kv_cache_read_tokens(const kv_cache *c, int32_t seq, int32_t *tokens) {
    kv_span_list s = kv_cache_spans(c, 0, seq);
    const int32_t *noted = kv_cache_cells(c, 0)->tokens;
    for (size_t i = 0; i < s.count; tokens += s.at[i].n_cells, i++)
        memcpy(tokens, noted + s.at[i].first_cell, (size_t)s.at[i].n_cells * sizeof *tokens);
}

void kv_cache_write_tokens(kv_cache *c, int32_t seq, const int32_t *tokens) {
    kv_span_list s = kv_cache_spans(c, 0, seq);
    int32_t *noted = kv_cache_cells(c, 0)->tokens;
    for (size_t i = 0; i < s.count; tokens += s.at[i].n_cells, i++)
        memcpy(noted + s.at[i].first_cell, tokens, (size_t)s.at[i].n_cells * sizeof *tokens);
}
