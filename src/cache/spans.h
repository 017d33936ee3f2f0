/* spans.h: the ordered list of spans of one sequence. Pure bookkeeping: knows neither stores nor free cells.
 *
 * Spans are in order of true position: none begins before the last position of the one in front of it. (Two
 * share a position only after positions were divided.) A released span keeps its place and its frame, but its
 * cells are gone.
 */
#pragma once

#include "base/memory.h"
#include "base/status.h"

typedef struct kv_span {
    int32_t first_cell; /* -1: released */
    int32_t n_cells;
    int64_t stored; /* position its first cell was rotated by */
    int64_t turn;   /* true position = stored + turn */
} kv_span;

typedef struct kv_spans {
    KV_VEC(kv_span) list;
    int64_t n_cells; /* released ones too */
} kv_spans;

static inline int64_t kv_span_pos(const kv_span *s) { return s->stored + s->turn; }
static inline int64_t kv_span_end(const kv_span *s) { return kv_span_pos(s) + s->n_cells; }
static inline bool kv_span_released(const kv_span *s) { return s->first_cell < 0; }

/* What an operation does to positions: nothing below p0; [p0, p1) is erased or moved by `inside`; what is
 * behind moves by `behind`. */
typedef struct kv_edit {
    int64_t p0, p1;
    bool erase;
    int64_t inside, behind;
} kv_edit;

/* Position behind the last cell, and behind the last that is released (0: none is). */
typedef struct kv_extent {
    int64_t end, released_end;
} kv_extent;

int64_t kv_spans_end(const kv_spans *s);
/* As it would be after `e`. */
kv_extent kv_spans_extent(const kv_spans *s, const kv_edit *e);
/* Room for `extra` more spans, so that what follows cannot fail. */
kv_status kv_spans_reserve(kv_spans *s, size_t extra);
/* Splits so that a span begins at position `pos`; returns the index of the first span at or behind it. Needs
 * room for one span. */
size_t kv_spans_split(kv_spans *s, int64_t pos);
/* One cell behind the last: extends the last span where cell, stored position and turn run on; else needs
 * room for one span. Cell -1: a released one. */
void kv_spans_push(kv_spans *s, int32_t cell, int64_t stored, int64_t turn);
/* Pushes a cell at the end position, in the frame of the last span (turn 0 in an empty sequence). */
void kv_spans_append(kv_spans *s, int32_t cell);
/* Deletes the spans [first, last). */
void kv_spans_erase(kv_spans *s, size_t first, size_t last);
/* Shrinks [*p0, *p1) to what lies between its first and its last cell; false if there is none in it. */
bool kv_spans_clip(const kv_spans *s, int64_t *p0, int64_t *p1);
/* Adds `delta` to the turns of [p0, p1) and puts the list in order again. Needs room for two spans. */
void kv_spans_turn(kv_spans *s, int64_t p0, int64_t p1, int64_t delta);
/* Back in order of position, after the turns of some were changed. */
void kv_spans_sort(kv_spans *s);
/* Joins neighbours that run on in cell, stored position and turn. */
void kv_spans_join(kv_spans *s);
