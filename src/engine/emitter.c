/* emitter.c: bytes through the UTF-8 stream into `held`, from there out up to the first place where a stop
 * string may begin. */
#define _GNU_SOURCE
#include "engine/emitter.h"

#include <string.h>

/* First stop string in held text: its offset, or the text's length. */
static size_t find_stop(const kv_emitter *e) {
    size_t first = e->held.count;
    for (int32_t i = 0; i < e->n_stop; i++) {
        size_t n = strlen(e->stop[i]);
        if (!n || n > e->held.count) continue;
        const char *at = memmem(e->held.at, e->held.count, e->stop[i], n);
        if (at && (size_t)(at - e->held.at) < first) first = (size_t)(at - e->held.at);
    }
    return first;
}

/* Where the longest beginning of a stop string starts that held text ends with; its length if there is none.
 */
static size_t find_beginning(const kv_emitter *e) {
    size_t first = e->held.count;
    for (int32_t i = 0; i < e->n_stop; i++) {
        size_t n = strlen(e->stop[i]), longest = n && n - 1 < e->held.count ? n - 1 : e->held.count;
        for (size_t k = n ? longest : 0; k > 0; k--)
            if (memcmp(e->held.at + e->held.count - k, e->stop[i], k) == 0) {
                if (e->held.count - k < first) first = e->held.count - k;
                break;
            }
    }
    return first;
}

/* Not once it has stopped: a callback that returned false is not called again. */
static void give_out(kv_emitter *e, size_t n) {
    if (!n || e->stopped) return;
    if (e->text && !e->text(e->user, e->held.at, n)) e->stopped = true;
    memmove(e->held.at, e->held.at + n, e->held.count - n);
    e->held.count -= n;
}

kv_status kv_emitter_push(kv_emitter *e, int32_t token) {
    const char *bytes;
    size_t n;
    KV_TRY(kv_tokenizer_piece(e->tokenizer, token, false, &bytes, &n));
    if (!kv_vec_reserve(&e->held, e->held.count + kv_utf8_push_max(n))) return KVANT_NO_MEMORY;
    e->held.count += kv_utf8_push(&e->utf8, bytes, n, e->held.at + e->held.count);
    size_t stop = find_stop(e);
    if (stop < e->held.count) {
        give_out(e, stop);
        e->stopped = true;
        return KVANT_OK;
    }
    give_out(e, find_beginning(e));
    return KVANT_OK;
}

kv_status kv_emitter_flush(kv_emitter *e) {
    if (!kv_vec_reserve(&e->held, e->held.count + kv_utf8_push_max(0))) return KVANT_NO_MEMORY;
    e->held.count += kv_utf8_flush(&e->utf8, e->held.at + e->held.count);
    give_out(e, e->held.count);
    return KVANT_OK;
}

void kv_emitter_clear(kv_emitter *e) { kv_vec_clear(&e->held); }
