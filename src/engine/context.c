/* context.c: the policies, for kvant_generate, chats and callers that evaluate by themselves. */
#include "engine/context.h"

kv_status kv_context_check(kvant_context_policy policy) {
    if ((unsigned)policy <= KVANT_CONTEXT_WINDOW) return KVANT_OK;
    return kv_fail(KVANT_INVALID, "context policy %d: must be stop (0), shift (1) or window (2)",
                   (int)policy);
}

int64_t kv_context_step(kvant_context_policy policy, int64_t rest) {
    if (policy == KVANT_CONTEXT_STOP || rest < 1) return 0;
    int64_t half = (rest + 1) / 2;
    return policy == KVANT_CONTEXT_WINDOW && half > KV_PAGE_CELLS ? KV_PAGE_CELLS : half;
}

kv_status kv_context_drop(kvant_session *s, int32_t seq, kvant_context_policy policy, int64_t n_keep,
                          int64_t *n_dropped) {
    int64_t n = kv_context_step(policy, kv_cache_end(s->cache, seq) - n_keep);
    kv_status status = n ? kvant_seq_drop(s, seq, n_keep, n_keep + n) : KVANT_OK;
    while (status == KVANT_UNSUPPORTED) { /* fewer, where a window would meet what it has released */
        n /= 2;
        status = n ? kvant_seq_drop(s, seq, n_keep, n_keep + n) : KVANT_OK;
    }
    *n_dropped = status ? 0 : n;
    return status;
}

kvant_status kvant_seq_make_room(kvant_session *s, int32_t seq, int64_t n_tokens, kvant_context_policy policy,
                                 int64_t n_keep, int64_t *n_dropped) {
    int64_t dropped = 0, step = 1;
    KV_TRY(kv_session_check_seq(s, seq));
    KV_TRY(kv_context_check(policy));
    if (n_keep < -1 || n_tokens < 0)
        return kv_fail(KVANT_INVALID, "room for %lld tokens, %lld of them kept: must be 0 and -1 or more",
                       (long long)n_tokens, (long long)n_keep);
    if (n_keep < 0) n_keep = KV_CONTEXT_SINKS;
    while (kv_session_room(s) < n_tokens && step) {
        KV_TRY(kv_context_drop(s, seq, policy, n_keep, &step));
        dropped += step;
    }
    if (n_dropped) *n_dropped = dropped;
    if (kv_session_room(s) >= n_tokens) return KVANT_OK;
    return kv_fail(KVANT_CONTEXT_FULL, "context is full: %lld tokens to add, room for %d of %d",
                   (long long)n_tokens, kv_session_room(s), s->n_ctx);
}
