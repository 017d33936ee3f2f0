/* spans.h: the ordered list of spans of one sequence. Pure bookkeeping: knows neither stores nor free cells.
 */
#pragma once

#include "base/memory.h"
#include "base/status.h"

typedef struct kv_span {
    int32_t first_cell, n_cells;
    int64_t stored; /* position its first cell was rotated by */
    int64_t turn;   /* true position = stored + turn */
} kv_span;

typedef struct kv_spans {
    KV_VEC(kv_span) list; /* by true position, no two overlap */
    int64_t n_cells;
} kv_spans;

static inline int64_t kv_span_pos(const kv_span *s) { return s->stored + s->turn; }

int64_t kv_spans_end(const kv_spans *s);
/* Room for `extra` more spans, so that what follows cannot fail. */
kv_status kv_spans_reserve(kv_spans *s, size_t extra);
/* Splits so that a span begins at position `pos`; returns the index of the first span at or behind it. Needs
 * room for one span. */
size_t kv_spans_split(kv_spans *s, int64_t pos);
/* Appends one cell at the end position, in the frame of the last span (turn 0 in an empty sequence). Extends
 * the last span where cell and position run on; else needs room for one span. */
void kv_spans_append(kv_spans *s, int32_t cell);
/* Deletes the spans [first, last). */
void kv_spans_erase(kv_spans *s, size_t first, size_t last);
/* Shrinks [*p0, *p1) to what lies between its first and its last cell; false if there is none in it. */
bool kv_spans_clip(const kv_spans *s, int64_t *p0, int64_t *p1);
/* Back in order of position, after the turns of some were changed. */
void kv_spans_sort(kv_spans *s);
/* Joins neighbours that run on in cell, stored position and turn. */
void kv_spans_join(kv_spans *s);
