/* context.h: what goes when a context is full. A policy takes tokens from behind those that are kept, the
 * oldest first; what follows moves down by a turn of its spans, so that positions stay below the size of the
 * context, and a sequence has two turns however often that happens: what is kept, and the rest. */
#pragma once

#include "engine/engine.h"

/* Attention that loses its first tokens goes astray; four are enough to hold it ("attention sinks":
 * G. Xiao et al., Efficient Streaming Language Models with Attention Sinks, 2023): a BOS and three more. */
enum { KV_CONTEXT_SINKS = 4 };

kv_status kv_context_check(kvant_context_policy policy);
/* How many of the `rest` tokens behind the kept ones go at once: half of them under shift, a page under
 * window (where that leaves half of them). 0 under stop, or when there are none. */
int64_t kv_context_step(kvant_context_policy policy, int64_t rest);
/* One such step on a sequence whose first n_keep tokens stay; *n_dropped is 0 where nothing may go. */
kv_status kv_context_drop(kvant_session *s, int32_t seq, kvant_context_policy policy, int64_t n_keep,
                          int64_t *n_dropped);
