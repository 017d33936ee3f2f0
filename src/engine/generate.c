/* generate.c: prompt in, tokens out, until something ends it. Budgets count generated tokens, never
 * positions. */
#include "base/clock.h"
#include "engine/context.h"
#include "engine/emitter.h"

#include <string.h>

const char *kvant_finish_text(kvant_finish finish) {
    static const char *const texts[] = {"end of text", "token limit", "context full", "stopped", "cancelled"};
    size_t i = (size_t)finish;
    return i < sizeof texts / sizeof *texts ? texts[i] : "unknown";
}

enum { HELD_BYTES = 1024 };

typedef struct run {
    const kv_generation *g;
    kvant_generate_result *result;
    kv_emitter emitter;
    int32_t limit; /* generated tokens at most; 0 = none */
    bool done;
} run;

static void finish(run *r, kvant_finish how) {
    r->done = true;
    r->result->finish = how;
}

static kv_status eval_one(const kv_generation *g, const int32_t *tokens, int32_t n) {
    return kvant_eval(g->session, &(kvant_chunk){g->seq, tokens, n, KVANT_LOGITS_LAST}, 1);
}

static kv_status prefill(run *r) {
    const kv_generation *g = r->g;
    int64_t start = kv_now_ns();
    if (!g->n_prompt) return kv_fail(KVANT_INVALID, "the prompt is empty: nothing to go on from");
    if (g->n_prompt > (size_t)kv_session_room(g->session))
        return kv_fail(KVANT_CONTEXT_FULL, "the prompt has %zu tokens, the context room for %d of %d",
                       g->n_prompt, kv_session_room(g->session), g->session->n_ctx);
    kv_status status = eval_one(g, g->prompt, (int32_t)g->n_prompt);
    r->result->prefill_seconds = kv_seconds_since(start);
    for (size_t i = 0; !status && i < g->n_prompt; i++) kv_sampler_accept(g->sampler, g->prompt[i]);
    return status;
}

/* Takes one token from the logits and decides whether it is the last. */
static kv_status take_token(run *r, int32_t *token) {
    const kv_generation *g = r->g;
    KV_TRY(kv_sampler_draw(token, g->sampler, kvant_logits(g->session, kvant_n_logits(g->session) - 1)));
    if (!g->options->ignore_end && kv_tokenizer_is_end(g->session->model->tokenizer, *token)) {
        finish(r, KVANT_FINISH_END);
        return KVANT_OK;
    }
    kv_sampler_accept(g->sampler, *token);
    if (g->generated && !kv_vec_push(g->generated, *token)) return KVANT_NO_MEMORY;
    r->result->n_generated++;
    bool go_on = !g->options->token || g->options->token(g->options->user, *token);
    KV_TRY(kv_emitter_push(&r->emitter, *token));
    if (r->emitter.stopped || !go_on)
        finish(r, KVANT_FINISH_STOPPED);
    else if (r->limit && r->result->n_generated >= r->limit)
        finish(r, KVANT_FINISH_LENGTH);
    return KVANT_OK;
}

/* Cells for the token just taken and, under KVANT_CONTEXT_STOP, for the next: none is generated that could
 * not have one. Dropping may free nothing, where another sequence shares the cells: then more is dropped. */
static kv_status find_room(run *r, int32_t n_cells) {
    const kv_generation *g = r->g;
    while (!r->done && kv_session_room(g->session) < n_cells) {
        bool made = false;
        if (g->options->context != KVANT_CONTEXT_STOP) KV_TRY(g->make_room(g->user, &made));
        if (made)
            r->result->n_shifts++;
        else
            finish(r, KVANT_FINISH_CONTEXT);
    }
    return KVANT_OK;
}

static kv_status decode(run *r) {
    bool stop = r->g->options->context == KVANT_CONTEXT_STOP;
    if (stop) KV_TRY(find_room(r, 1));
    while (!r->done) {
        int32_t token = 0;
        KV_TRY(take_token(r, &token));
        if (!r->done) KV_TRY(find_room(r, stop ? 2 : 1));
        if (!r->done) KV_TRY(eval_one(r->g, &token, 1));
    }
    return KVANT_OK;
}

static kv_status check_options(const kv_generation *g) {
    const kvant_generate_options *o = g->options;
    int32_t n_ctx = g->session->n_ctx;
    if (o->max_tokens < 0) return kv_fail(KVANT_INVALID, "max_tokens: %d, must be 0 or more", o->max_tokens);
    if (o->n_keep < -1 || o->n_keep >= n_ctx)
        return kv_fail(KVANT_INVALID, "n_keep: %d, must be -1 to %d (context %d)", o->n_keep, n_ctx - 1,
                       n_ctx);
    KV_TRY(kv_context_check(o->context));
    if (o->n_stop < 0 || (o->n_stop && !o->stop))
        return kv_fail(KVANT_INVALID, "n_stop: %d strings", o->n_stop);
    return KVANT_OK;
}

kv_status kv_run_generation(const kv_generation *g, kvant_generate_result *result) {
    const kvant_generate_options *o = g->options;
    KV_TRY(check_options(g));
    run r = {.g = g, .result = result, .limit = o->max_tokens};
    if (!r.limit && o->context != KVANT_CONTEXT_STOP) r.limit = g->session->n_ctx; /* or it might never end */
    r.emitter = (kv_emitter){.tokenizer = g->session->model->tokenizer,
                             .stop = o->stop,
                             .n_stop = o->n_stop,
                             .text = o->text,
                             .user = o->user};
    /* room for the text held back, so that steps allocate nothing */
    kv_status status = kv_vec_reserve(&r.emitter.held, HELD_BYTES) ? prefill(&r) : KVANT_NO_MEMORY;
    int64_t start = kv_now_ns();
    if (!status) status = decode(&r);
    if (!status || status == KVANT_CANCELLED) {
        kv_status flushed = kv_emitter_flush(&r.emitter);
        if (!status) status = flushed;
        result->decode_seconds = kv_seconds_since(start);
    }
    if (status == KVANT_CANCELLED) result->finish = KVANT_FINISH_CANCELLED;
    kv_emitter_clear(&r.emitter);
    return status;
}

/* ---- kvant_generate ---- */

typedef struct plain_room {
    kvant_session *session;
    int32_t seq;
    kvant_context_policy policy;
    int64_t n_keep;
} plain_room;

static kv_status drop_oldest(void *user, bool *made) {
    const plain_room *p = user;
    int64_t n_dropped;
    KV_TRY(kv_context_drop(p->session, p->seq, p->policy, p->n_keep, &n_dropped));
    *made = n_dropped > 0;
    return KVANT_OK;
}

/* Tokens of the sequence that are never dropped, when it holds `end` with the prompt. */
static int64_t kept_tokens(const kvant_generate_options *o, int64_t end, bool trimmed) {
    if (o->n_keep >= 0) return o->n_keep;
    return o->context == KVANT_CONTEXT_WINDOW || trimmed ? KV_CONTEXT_SINKS : end;
}

/* `out` = the beginning and the end of a prompt that does not fit; empty where it does, or where it may not
 * be trimmed. */
static kv_status trim_prompt(kv_tokens *out, const kv_generation *g, int64_t before,
                             kvant_generate_result *r) {
    int64_t room = kv_session_room(g->session), answer = room / 4, n = (int64_t)g->n_prompt;
    if (!g->options->trim || n <= room) return KVANT_OK;
    if (g->options->max_tokens && g->options->max_tokens < answer) answer = g->options->max_tokens;
    int64_t head = kept_tokens(g->options, 0, true) - before, limit = room - answer;
    if (head < 0) head = 0;
    if (head >= limit)
        return kv_fail(KVANT_CONTEXT_FULL,
                       "the prompt has %zu tokens, the context room for %lld, too few to "
                       "keep %lld and the end",
                       g->n_prompt, (long long)room, (long long)head);
    if (!kv_vec_reserve(out, (size_t)limit)) return KVANT_NO_MEMORY;
    memcpy(out->at, g->prompt, (size_t)head * sizeof *out->at);
    memcpy(out->at + head, g->prompt + n - (limit - head), (size_t)(limit - head) * sizeof *out->at);
    out->count = (size_t)limit;
    r->n_trimmed = n - limit < INT32_MAX ? (int32_t)(n - limit) : INT32_MAX;
    r->trim_begin = (int32_t)head;
    return KVANT_OK;
}

static kv_status generate_trimmed(kv_generation *g, plain_room *room, kvant_generate_result *r) {
    int64_t before = kv_cache_end(g->session->cache, g->seq);
    kv_tokens trimmed = {0};
    kv_status status = trim_prompt(&trimmed, g, before, r);
    if (trimmed.count) g->prompt = trimmed.at, g->n_prompt = trimmed.count;
    room->n_keep = kept_tokens(g->options, before + (int64_t)g->n_prompt, trimmed.count > 0);
    if (!status) status = kv_run_generation(g, r);
    kv_vec_clear(&trimmed);
    return status;
}

kvant_status kvant_generate(kvant_session *s, int32_t seq, kvant_sampler *sampler, const kvant_token *prompt,
                            size_t n_prompt, const kvant_generate_options *options,
                            kvant_generate_result *result) {
    kvant_generate_options o = KVANT_GENERATE_OPTIONS_INIT;
    kvant_generate_result r = KVANT_GENERATE_RESULT_INIT;
    KV_TRY(kv_session_check_seq(s, seq));
    KV_TRY(kv_take_struct(&o, sizeof o, options, "kvant_generate_options"));
    if (!sampler || (!prompt && n_prompt))
        return kv_fail(KVANT_INVALID, "kvant_generate: sampler and prompt must not be NULL");
    plain_room room = {.session = s, .seq = seq, .policy = o.context};
    kv_generation g = {.session = s,
                       .seq = seq,
                       .sampler = sampler->sampler,
                       .prompt = prompt,
                       .n_prompt = n_prompt,
                       .options = &o,
                       .make_room = drop_oldest,
                       .user = &room};
    r.n_prompt = n_prompt < INT32_MAX ? (int32_t)n_prompt : INT32_MAX;
    kv_status status = generate_trimmed(&g, &room, &r);
    if (result) kv_give_struct(result, &r, sizeof r);
    return status;
}
