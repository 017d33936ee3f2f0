/* emitter.h: generated tokens to text as it becomes final: whole UTF-8 characters, nothing that may turn out
 * to be the beginning of a stop string. */
#pragma once

#include "base/memory.h"
#include "kvant.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

typedef struct kv_emitter {
    const kv_tokenizer *tokenizer;
    const char *const *stop;
    int32_t n_stop;
    kvant_text_fn text; /* may be NULL */
    void *user;
    kv_utf8_stream utf8;
    KV_VEC(char) held; /* valid text not given out yet */
    bool stopped;      /* a stop string was met, or the callback returned false */
} kv_emitter;

kv_status kv_emitter_push(kv_emitter *e, int32_t token);
/* The end: what is held goes out, unless a stop string cut it off. */
kv_status kv_emitter_flush(kv_emitter *e);
void kv_emitter_clear(kv_emitter *e);
