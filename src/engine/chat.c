/* chat.c: a conversation as a line of tokens in one sequence. Every message in the context owns a part of the
 * line; what the model wrote stays the tokens it wrote. The cache holds a beginning of the line, position by
 * position, so a reply evaluates only the rest, and dropping messages from the line is dropping their
 * positions from the sequence.
 *
 *     line   | head | system | user | assistant | user | assistant ...    head: a BOS, a default system
 * message cache  |-------------------------------|
 *
 * splice() alone changes the line, and the cache with it.
 */
#include "engine/chat.h"

#include "engine/context.h"

#include <string.h>

typedef kv_chat_entry message;

static bool has_role(const message *m, const char *role) { return strcmp(m->role, role) == 0; }

static const kv_tokenizer *tokenizer_of(const kvant_chat *c) { return c->session->model->tokenizer; }

/* ---- creation ---- */

static kv_status pick_renderer(kvant_chat *c, const char *name) {
    kv_gguf_string t = {0};
    KV_TRY(kv_gguf_get_string(kv_model_gguf(c->session->model), "tokenizer.chat_template", KV_GGUF_OPTIONAL,
                              &t));
    return kv_chat_renderer_create(&c->renderer, name, t.at, t.size, tokenizer_of(c));
}

/* The head is what no message at all is rendered as; the closing what two different replies end with alike.
 */
static kv_status probe_format(kvant_chat *c) {
    kv_chat_message a[] = {{"user", ""}, {"assistant", "a"}}, b[] = {{"user", ""}, {"assistant", "b"}};
    kv_tokens head = {0}, other = {0};
    kv_status status = kv_chat_render(c->renderer, tokenizer_of(c), NULL, 0, false, &head, NULL);
    if (!status) status = kv_chat_render(c->renderer, tokenizer_of(c), a, 2, false, &c->closing, NULL);
    if (!status) status = kv_chat_render(c->renderer, tokenizer_of(c), b, 2, false, &other, NULL);
    size_t n = 0, n_a = c->closing.count, n_b = other.count;
    while (n < n_a && n < n_b && c->closing.at[n_a - 1 - n] == other.at[n_b - 1 - n]) n++;
    if (n) memmove(c->closing.at, c->closing.at + n_a - n, n * sizeof *c->closing.at);
    c->closing.count = n;
    c->n_head = head.count;
    kv_vec_clear(&head);
    kv_vec_clear(&other);
    return status;
}

kvant_status kvant_chat_create(kvant_chat **out, kvant_session *s, int32_t seq,
                               const kvant_chat_options *options) {
    kvant_chat_options o = KVANT_CHAT_OPTIONS_INIT;
    KV_TRY(kv_session_check_seq(s, seq));
    KV_TRY(kv_take_struct(&o, sizeof o, options, "kvant_chat_options"));
    KV_TRY(kv_context_check(o.context));
    kvant_chat *c = kv_alloc(1, sizeof *c);
    if (!c) return KVANT_NO_MEMORY;
    *c = (kvant_chat){.session = s, .seq = seq, .policy = o.context};
    kv_status status = pick_renderer(c, o.template_name);
    if (!status) status = probe_format(c);
    if (!status) status = kv_cache_remove(s->cache, seq, 0, -1);
    if (status)
        kvant_chat_close(c);
    else
        *out = c;
    return status;
}

static void free_message(message *m) {
    kv_free(m->role);
    kv_free(m->text);
}

void kv_chat_entries_clear(kv_chat_entries *messages) {
    for (size_t i = 0; i < messages->count; i++) free_message(&messages->at[i]);
    kv_vec_clear(messages);
}

void kvant_chat_close(kvant_chat *c) {
    if (!c) return;
    kv_chat_entries_clear(&c->messages);
    kv_vec_clear(&c->line);
    kv_vec_clear(&c->closing);
    kv_chat_renderer_destroy(c->renderer);
    kv_free(c);
}

/* ---- the line ---- */

/* Tokens [begin, behind) of the line become `fresh`. The cache keeps what it holds in front of them and, if
 * nothing is fresh, behind them. Cutting off the end cannot fail. */
static kv_status splice(kvant_chat *c, size_t begin, size_t behind, const int32_t *fresh, size_t n) {
    size_t rest = c->line.count - behind;
    int64_t cached = kv_cache_end(c->session->cache, c->seq), first = (int64_t)begin, last = (int64_t)behind;
    if (!kv_vec_reserve(&c->line, begin + n + rest)) return KVANT_NO_MEMORY;
    if (n || cached <= last) /* removes nothing if the cache ends before */
        KV_TRY(kv_session_cut(c->session, c->seq, first));
    else
        KV_TRY(kv_session_drop(c->session, c->seq, first, last));
    if (rest) memmove(c->line.at + begin + n, c->line.at + behind, rest * sizeof *c->line.at);
    if (n) memcpy(c->line.at + begin, fresh, n * sizeof *fresh);
    c->line.count = begin + n + rest;
    return KVANT_OK;
}

static kv_status cut_line(kvant_chat *c, size_t end) { return splice(c, end, c->line.count, NULL, 0); }

/* The conversation as the template writes it: messages in the context only. */
typedef struct rendering {
    kv_tokens tokens;
    size_t *ends; /* of each message */
    size_t n;     /* messages */
} rendering;

/* Renders those of the first `count` messages that are in the context; `reply` opens one behind them. */
static kv_status render(const kvant_chat *c, size_t count, bool reply, rendering *r) {
    kv_chat_message *list = kv_alloc(count, sizeof *list);
    r->ends = kv_alloc(count, sizeof *r->ends);
    kv_status status = list && r->ends ? KVANT_OK : KVANT_NO_MEMORY;
    for (size_t i = 0; !status && i < count; i++) {
        const message *m = &c->messages.at[i];
        if (m->in_context) list[r->n++] = (kv_chat_message){m->role, m->text};
    }
    if (!status)
        status = kv_chat_render(c->renderer, tokenizer_of(c), list, r->n, reply, &r->tokens, r->ends);
    kv_free(list);
    return status;
}

static void clear_rendering(rendering *r) {
    kv_vec_clear(&r->tokens);
    kv_free(r->ends);
}

/* Where the last message begins; the only one begins behind the head, unless it is the system's. */
static size_t last_begin(const kvant_chat *c, const rendering *r, const message *last) {
    return r->n > 1 ? r->ends[r->n - 2] : has_role(last, "system") ? 0 : c->n_head;
}

/* ---- messages ---- */

static kv_status push_message(kvant_chat *c, const char *role, const char *text, size_t n) {
    message m = {.role = kv_strdup(role), .text = kv_strndup(text, n), .in_context = true};
    if (m.role && m.text && kv_vec_push(&c->messages, m)) return KVANT_OK;
    free_message(&m);
    return KVANT_NO_MEMORY;
}

static void forget_last(kvant_chat *c) { free_message(&c->messages.at[--c->messages.count]); }

/* Puts the last message at the end of the line. The only message in the context starts the line anew. */
static kv_status append_last(kvant_chat *c) {
    message *last = &c->messages.at[c->messages.count - 1];
    rendering r = {0};
    kv_status status = render(c, c->messages.count, false, &r);
    if (!status) {
        size_t own = last_begin(c, &r, last), from = r.n > 1 ? own : 0, at = r.n > 1 ? c->line.count : 0;
        status = splice(c, at, c->line.count, r.tokens.at + from, r.tokens.count - from);
        last->begin = at + own - from;
        last->end = c->line.count;
    }
    clear_rendering(&r);
    return status;
}

kvant_status kvant_chat_add(kvant_chat *c, const char *role, const char *text) {
    if (!role || !text) return kv_fail(KVANT_INVALID, "kvant_chat_add: role and text must not be NULL");
    KV_TRY(push_message(c, role, text, strlen(text)));
    kv_status status = append_last(c);
    if (status) forget_last(c);
    return status;
}

kvant_status kvant_chat_pop(kvant_chat *c) {
    if (!c->messages.count) return kv_fail(KVANT_INVALID, "the conversation is empty");
    KV_TRY(cut_line(c, c->messages.count == 1 ? 0 : c->messages.at[c->messages.count - 1].begin));
    forget_last(c);
    return KVANT_OK;
}

kvant_status kvant_chat_clear(kvant_chat *c) {
    KV_TRY(cut_line(c, 0));
    while (c->messages.count) forget_last(c);
    return KVANT_OK;
}

int32_t kvant_chat_count(const kvant_chat *c) { return (int32_t)c->messages.count; }

kvant_status kvant_chat_message(const kvant_chat *c, int32_t i, const char **role, const char **text,
                                bool *in_context) {
    if (i < 0 || (size_t)i >= c->messages.count)
        return kv_fail(KVANT_INVALID, "message %d: there are %zu", i, c->messages.count);
    const message *m = &c->messages.at[i];
    if (role) *role = m->role;
    if (text) *text = m->text;
    if (in_context) *in_context = m->in_context;
    return KVANT_OK;
}

const char *kvant_chat_template(const kvant_chat *c) { return kv_chat_renderer_name(c->renderer); }

/* ---- dropping messages ---- */

/* 0 if there is none. */
static size_t last_user(const kvant_chat *c) {
    size_t i = c->messages.count;
    while (i > 0 && !has_role(&c->messages.at[i - 1], "user")) i--;
    return i ? i - 1 : 0;
}

static bool may_go(const message *m) { return m->in_context && !has_role(m, "system"); }

/* The oldest exchange that may go: a message that is neither dropped nor the system's, and what follows up to
 * the next user or system message. The last user message stays, and what comes after it. */
static bool find_exchange(const kvant_chat *c, size_t *first, size_t *end) {
    size_t i = 0, last = last_user(c);
    while (i < last && !may_go(&c->messages.at[i])) i++;
    *first = i;
    while (i < last && may_go(&c->messages.at[i]) && (i == *first || !has_role(&c->messages.at[i], "user")))
        i++;
    *end = i;
    return *first < last;
}

/* How many tokens are left when every exchange that may go is gone. */
static size_t least_line(const kvant_chat *c) {
    size_t n = c->line.count;
    for (size_t i = 0; i < last_user(c); i++)
        if (may_go(&c->messages.at[i])) n -= c->messages.at[i].end - c->messages.at[i].begin;
    return n;
}

/* The books, when messages [first, end) are gone: message `end` begins at `begin`, and all from its end on
 * has moved by `delta` tokens. */
static void move_messages(kvant_chat *c, size_t first, size_t end, size_t begin, ptrdiff_t delta) {
    for (size_t i = first; i < c->messages.count; i++) {
        message *m = &c->messages.at[i];
        m->begin = i <= end ? begin : m->begin + (size_t)delta;
        m->end = i < end ? begin : m->end + (size_t)delta;
    }
    c->reply_begin += (size_t)delta; /* messages go only for a reply */
}

/* Messages [first, end), out of the context already, leave line and cache. The message behind them may be
 * written otherwise where it now stands: without a BOS of its own as the first, without an opening behind a
 * system message that has opened it. Then the beginning in which the two differ is replaced too. (Replies
 * stay the tokens that were generated.) */
static kv_status close_gap(kvant_chat *c, size_t first, size_t end) {
    const message *next = &c->messages.at[end];
    size_t begin = c->messages.at[first].begin, behind = next->begin, n = 0;
    const int32_t *fresh = NULL;
    rendering r = {0};
    kv_status status = KVANT_OK;
    if (!has_role(next, "assistant")) {
        KV_TRY_DONE(render(c, end + 1, false, &r));
        if (r.n == 1) begin = last_begin(c, &r, next); /* a system message takes the head's place */
        fresh = r.tokens.at + last_begin(c, &r, next);
        n = (size_t)(r.tokens.at + r.tokens.count - fresh);
        behind = next->end;
        while (n && behind > next->begin && fresh[n - 1] == c->line.at[behind - 1]) n--, behind--;
    }
    KV_TRY_DONE(splice(c, begin, behind, fresh, n));
    move_messages(c, first, end, begin, (ptrdiff_t)(begin + n) - (ptrdiff_t)behind);
done:
    clear_rendering(&r);
    return status;
}

static kv_status drop_messages(kvant_chat *c, size_t first, size_t end) {
    for (size_t i = first; i < end; i++) c->messages.at[i].in_context = false;
    kv_status status = close_gap(c, first, end);
    for (size_t i = first; status && i < end; i++) c->messages.at[i].in_context = true;
    return status;
}

/* While generating: the oldest exchange goes. The line ends with a token that is about to be evaluated; what
 * else the cache has lost is evaluated here. */
static kv_status drop_exchange(void *user, bool *made) {
    kvant_chat *c = user;
    size_t first, end;
    *made = find_exchange(c, &first, &end);
    if (!*made) return KVANT_OK;
    KV_TRY(drop_messages(c, first, end));
    size_t cached = (size_t)kv_cache_end(c->session->cache, c->seq), n = c->line.count - 1 - cached;
    if (!n) return KVANT_OK;
    return kvant_eval(c->session, &(kvant_chunk){c->seq, c->line.at + cached, (int32_t)n, KVANT_LOGITS_NONE},
                      1);
}

/* ---- dropping tokens ---- */

/* Tokens at the start of the line that stay: the head, the system messages behind it. */
static size_t sinks(const kvant_chat *c, int32_t n_keep) {
    size_t n = c->n_head > KV_CONTEXT_SINKS ? c->n_head : KV_CONTEXT_SINKS;
    for (size_t i = 0; i < c->messages.count && has_role(&c->messages.at[i], "system"); i++)
        if (c->messages.at[i].end > n) n = c->messages.at[i].end;
    return n_keep > 0 && (size_t)n_keep > n ? (size_t)n_keep : n;
}

/* Where token `at` of the line stands when [begin, behind) is gone. */
static size_t moved(size_t at, size_t begin, size_t behind) {
    return at >= behind ? at - (behind - begin) : at > begin ? begin : at;
}

/* Tokens [begin, behind) of the line go, whatever messages they belong to. A message is out of the context
 * when nothing of it is left. */
static kv_status drop_tokens(kvant_chat *c, size_t begin, size_t behind) {
    KV_TRY(splice(c, begin, behind, NULL, 0));
    for (size_t i = 0; i < c->messages.count; i++) {
        message *m = &c->messages.at[i];
        bool had_any = m->end > m->begin;
        m->begin = moved(m->begin, begin, behind);
        m->end = moved(m->end, begin, behind);
        if (had_any && m->end == m->begin) m->in_context = false;
    }
    if (behind > c->reply_begin) c->reply_lost += behind - (begin > c->reply_begin ? begin : c->reply_begin);
    c->reply_begin = moved(c->reply_begin, begin, behind);
    return KVANT_OK;
}

/* While generating under the window policy: a page goes. */
static kv_status drop_page(void *user, bool *made) {
    kvant_chat *c = user;
    size_t keep = sinks(c, c->n_keep);
    int64_t n =
        kv_context_step(KVANT_CONTEXT_WINDOW, kv_cache_end(c->session->cache, c->seq) - (int64_t)keep);
    *made = n > 0;
    return *made ? drop_tokens(c, keep, keep + (size_t)n) : KVANT_OK;
}

/* ---- making the line fit, before a reply ---- */

/* Pages go from between the sinks and the last question, until a token more fits. */
static kv_status slide(kvant_chat *c, size_t room, int32_t *n_shifts) {
    while (c->line.count >= room) {
        size_t keep = sinks(c, c->n_keep), question = c->messages.at[last_user(c)].begin;
        size_t rest = question > keep ? question - keep : 0;
        if (!rest) return KVANT_OK;
        KV_TRY(drop_tokens(c, keep, keep + (rest < KV_PAGE_CELLS ? rest : KV_PAGE_CELLS)));
        ++*n_shifts;
    }
    return KVANT_OK;
}

/* Where less than an eighth of the context is free, exchanges go until a quarter is. */
static kv_status shed(kvant_chat *c, size_t room, int32_t *n_shifts) {
    size_t first, end;
    if (c->line.count + room / 8 < room) return KVANT_OK;
    while (c->line.count > room - room / 4 && find_exchange(c, &first, &end)) {
        KV_TRY(drop_messages(c, first, end));
        ++*n_shifts;
    }
    return KVANT_OK;
}

/* Tokens that are left when all that may go is gone. */
static size_t least_tokens(const kvant_chat *c) {
    if (c->policy == KVANT_CONTEXT_STOP) return c->line.count;
    if (c->policy == KVANT_CONTEXT_SHIFT) return least_line(c);
    size_t keep = sinks(c, c->n_keep), question = c->messages.at[last_user(c)].begin;
    return question > keep ? c->line.count - question + keep : c->line.count;
}

/* What stands behind the sinks goes until a quarter of the room is free for the reply, messages or not. */
static kv_status trim_line(kvant_chat *c, size_t room, kvant_generate_result *result) {
    size_t keep = sinks(c, c->n_keep), limit = room - room / 4;
    if (c->line.count <= limit) return KVANT_OK;
    size_t n = c->line.count - limit;
    if (keep + n >= c->line.count)
        return kv_fail(KVANT_CONTEXT_FULL,
                       "the conversation begins with %zu tokens that stay, the context has "
                       "room for %zu",
                       keep, room);
    KV_TRY(drop_tokens(c, keep, keep + n));
    result->n_trimmed = (int32_t)n;
    result->trim_begin = (int32_t)keep;
    return KVANT_OK;
}

static kv_status make_line_fit(kvant_chat *c, bool trim, kvant_generate_result *result) {
    size_t room = (size_t)(kv_session_room(c->session) + kv_cache_tokens(c->session->cache, c->seq));
    size_t least = least_tokens(c);
    if (least >= room && !trim)
        return kv_fail(KVANT_CONTEXT_FULL, "the conversation has %zu tokens, the context room for %zu", least,
                       room);
    if (c->policy == KVANT_CONTEXT_SHIFT) KV_TRY(shed(c, room, &result->n_shifts));
    if (c->policy == KVANT_CONTEXT_WINDOW) KV_TRY(slide(c, room, &result->n_shifts));
    return c->line.count >= room ? trim_line(c, room, result) : KVANT_OK;
}

/* ---- replying ---- */

typedef struct reply_text {
    const kvant_generate_options *options;
    KV_VEC(char) text;
    bool failed;
} reply_text;

static bool pass_token(void *user, kvant_token token) {
    const reply_text *r = user;
    return !r->options->token || r->options->token(r->options->user, token);
}

static bool collect_text(void *user, const char *text, size_t n) {
    reply_text *r = user;
    r->failed = !kv_vec_reserve(&r->text, r->text.count + n);
    if (r->failed) return false;
    memcpy(r->text.at + r->text.count, text, n);
    r->text.count += n;
    return !r->options->text || r->options->text(r->options->user, text, n);
}

/* Behind the last message, unless the context holds none. */
static kv_status append_opening(kvant_chat *c) {
    rendering r = {0};
    kv_status status = render(c, c->messages.count, true, &r);
    if (!status && !r.n) status = kv_fail(KVANT_INVALID, "the conversation is empty: nothing to reply to");
    if (!status) {
        size_t from = r.ends[r.n - 1];
        status = splice(c, c->line.count, c->line.count, r.tokens.at + from, r.tokens.count - from);
    }
    clear_rendering(&r);
    return status;
}

/* Evaluates the end of the line, at least one token of it, and generates onto it. */
static kv_status generate_reply(kvant_chat *c, kvant_sampler *sampler, reply_text *text,
                                kvant_generate_result *result) {
    kvant_generate_options o = *text->options;
    o.text = collect_text;
    o.token = pass_token;
    o.user = text;
    o.context = c->policy;
    /* tokens are generated into the line without a further allocation */
    if (!kv_vec_reserve(&c->line, (size_t)c->session->n_ctx + 1)) return KVANT_NO_MEMORY;
    KV_TRY(kv_session_cut(c->session, c->seq, (int64_t)c->line.count - 1));
    size_t cached = (size_t)kv_cache_end(c->session->cache, c->seq);
    kv_generation g = {.session = c->session,
                       .seq = c->seq,
                       .sampler = sampler->sampler,
                       .prompt = c->line.at + cached, /* not looked at any more when the line grows */
                       .n_prompt = c->line.count - cached,
                       .options = &o,
                       .generated = &c->line,
                       .make_room = c->policy == KVANT_CONTEXT_WINDOW ? drop_page : drop_exchange,
                       .user = c};
    result->n_prompt = (int32_t)c->line.count;
    result->n_cached = (int32_t)cached;
    kv_status status = kv_run_generation(&g, result);
    return text->failed ? KVANT_NO_MEMORY : status;
}

/* The text was cut off inside what was generated: the line takes the tokens of the text as it is, but for
 * those that it has dropped, and the cache keeps those that are alike. */
static kv_status rewrite_reply(kvant_chat *c) {
    rendering r = {0};
    kv_status status = render(c, c->messages.count, false, &r);
    if (!status) {
        size_t begin = last_begin(c, &r, &c->messages.at[c->messages.count - 1]) + c->reply_lost;
        if (begin > r.tokens.count) begin = r.tokens.count;
        const int32_t *fresh = r.tokens.at + begin;
        size_t n = r.tokens.count - begin, old = c->line.count - c->reply_begin, same = 0;
        while (same < n && same < old && fresh[same] == c->line.at[c->reply_begin + same]) same++;
        status = splice(c, c->reply_begin + same, c->line.count, fresh + same, n - same);
    }
    clear_rendering(&r);
    return status;
}

static kv_status append_reply(kvant_chat *c, const reply_text *text, bool cut_off) {
    KV_TRY(push_message(c, "assistant", text->text.at ? text->text.at : "", text->text.count));
    size_t end = c->line.count;
    kv_status status = cut_off ? rewrite_reply(c) : splice(c, end, end, c->closing.at, c->closing.count);
    message *last = &c->messages.at[c->messages.count - 1];
    last->begin = c->reply_begin;
    last->end = c->line.count;
    if (status) forget_last(c);
    return status;
}

/* A reply that fails leaves the conversation without it; what was dropped to make room for it stays dropped.
 */
static kv_status reply(kvant_chat *c, kvant_sampler *sampler, reply_text *text,
                       kvant_generate_result *result) {
    c->reply_begin = c->line.count;
    c->reply_lost = 0;
    c->n_keep = text->options->n_keep;
    KV_TRY(append_opening(c));
    kv_status status = make_line_fit(c, text->options->trim, result);
    if (!status) status = generate_reply(c, sampler, text, result);
    bool keep = !status || (status == KVANT_CANCELLED && result->n_generated);
    kv_status kept = keep ? append_reply(c, text, result->finish == KVANT_FINISH_STOPPED) : KVANT_OK;
    if (keep && !kept) return status;
    KV_TRY(cut_line(c, c->reply_begin));
    return kept ? kept : status;
}

kvant_status kvant_chat_reply(kvant_chat *c, kvant_sampler *sampler, const kvant_generate_options *options,
                              kvant_generate_result *result) {
    kvant_generate_options o = KVANT_GENERATE_OPTIONS_INIT;
    kvant_generate_result r = KVANT_GENERATE_RESULT_INIT;
    if (!sampler) return kv_fail(KVANT_INVALID, "kvant_chat_reply: sampler must not be NULL");
    KV_TRY(kv_take_struct(&o, sizeof o, options, "kvant_generate_options"));
    reply_text text = {.options = &o};
    kv_status status = reply(c, sampler, &text, &r);
    kv_vec_clear(&text.text);
    if (result) kv_give_struct(result, &r, sizeof r);
    return status;
}
