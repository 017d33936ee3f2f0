/* chat.c: a conversation as a line of tokens in one sequence. Every message owns a part of the line; what the
 * model wrote stays the tokens it wrote. The cache holds a beginning of the line, position by position, so a
 * reply evaluates only the rest, and dropping a message from the line is dropping its positions from the
 * sequence. */
#include "engine/engine.h"

#include <string.h>

typedef struct message {
    char *role, *text;
    size_t begin, end; /* its tokens in the line; equal once it was dropped */
    bool in_context;
} message;

struct kvant_chat {
    kvant_session *session;
    int32_t seq;
    kvant_context_policy policy;
    kv_chat_renderer *renderer;
    KV_VEC(message) messages;
    kv_tokens line;
    size_t reply_begin; /* of the reply being generated */
};

static const kv_tokenizer *tokenizer_of(const kvant_chat *c) { return c->session->model->tokenizer; }

/* ---- creation ---- */

static kv_status pick_renderer(kvant_chat *c, const char *name) {
    kv_gguf_string t = {0};
    KV_TRY(kv_gguf_get_string(kv_model_gguf(c->session->model), "tokenizer.chat_template", KV_GGUF_OPTIONAL,
                              &t));
    return kv_chat_renderer_create(&c->renderer, name, t.at, t.size, tokenizer_of(c));
}

kvant_status kvant_chat_create(kvant_chat **out, kvant_session *s, int32_t seq,
                               const kvant_chat_options *options) {
    kvant_chat_options o = KVANT_CHAT_OPTIONS_INIT;
    KV_TRY(kv_session_check_seq(s, seq));
    KV_TRY(kv_take_struct(&o, sizeof o, options, "kvant_chat_options"));
    if ((unsigned)o.context > KVANT_CONTEXT_SHIFT)
        return kv_fail(KVANT_INVALID, "context policy %d: must be stop (0) or shift (1)", (int)o.context);
    kvant_chat *c = kv_alloc(1, sizeof *c);
    if (!c) return KVANT_NO_MEMORY;
    *c = (kvant_chat){.session = s, .seq = seq, .policy = o.context};
    kv_status status = pick_renderer(c, o.template_name);
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

void kvant_chat_close(kvant_chat *c) {
    if (!c) return;
    for (size_t i = 0; i < c->messages.count; i++) free_message(&c->messages.at[i]);
    kv_vec_clear(&c->messages);
    kv_vec_clear(&c->line);
    kv_chat_renderer_destroy(c->renderer);
    kv_free(c);
}

/* ---- messages and their tokens ---- */

static kv_status copy_message(message *m, const char *role, const char *text, size_t n) {
    *m = (message){.role = kv_strdup(role), .text = kv_strndup(text, n), .in_context = true};
    if (m->role && m->text) return KVANT_OK;
    free_message(m);
    return KVANT_NO_MEMORY;
}

/* Renders all messages and appends the tokens behind message `from` (the opening of a reply included if
 * `reply`) to the line; with from == count only the opening. */
static kv_status append_rendered(kvant_chat *c, size_t from, bool reply) {
    size_t n = c->messages.count;
    kv_tokens all = {0};
    kv_chat_message *list = kv_alloc(n, sizeof *list);
    size_t *ends = kv_alloc(n + 1, sizeof *ends);
    kv_status status = list && ends ? KVANT_OK : KVANT_NO_MEMORY;
    for (size_t i = 0; !status && i < n; i++)
        list[i] = (kv_chat_message){c->messages.at[i].role, c->messages.at[i].text};
    if (!status) status = kv_chat_render(c->renderer, tokenizer_of(c), list, n, reply, &all, ends);
    if (!status) {
        size_t begin = from ? ends[from - 1] : 0;
        if (kv_vec_reserve(&c->line, c->line.count + all.count - begin)) {
            memcpy(c->line.at + c->line.count, all.at + begin, (all.count - begin) * sizeof *all.at);
            c->line.count += all.count - begin;
        } else {
            status = KVANT_NO_MEMORY;
        }
    }
    kv_vec_clear(&all);
    kv_free(list);
    kv_free(ends);
    return status;
}

/* The line ends at `end`; the cache holds no more than the line. */
static kv_status cut_line(kvant_chat *c, size_t end) {
    c->line.count = end;
    if (kv_cache_end(c->session->cache, c->seq) <= (int64_t)end) return KVANT_OK;
    return kv_cache_remove(c->session->cache, c->seq, (int64_t)end, -1);
}

/* Tokens in front of a first message that is not the system's (BOS, a default system message): they belong to no
 * message and are never dropped. */
static kv_status count_head(const kvant_chat *c, const char *role, size_t *n) {
    *n = 0;
    if (c->messages.count || strcmp(role, "system") == 0) return KVANT_OK;
    kv_tokens head = {0};
    kv_status status = kv_chat_render(c->renderer, tokenizer_of(c), NULL, 0, false, &head, NULL);
    *n = head.count;
    kv_vec_clear(&head);
    return status;
}

kvant_status kvant_chat_add(kvant_chat *c, const char *role, const char *text) {
    if (!role || !text) return kv_fail(KVANT_INVALID, "kvant_chat_add: role and text must not be NULL");
    message m;
    size_t begin = c->line.count, head;
    KV_TRY(count_head(c, role, &head));
    KV_TRY(copy_message(&m, role, text, strlen(text)));
    m.begin = begin + head;
    if (!kv_vec_push(&c->messages, m)) {
        free_message(&m);
        return KVANT_NO_MEMORY;
    }
    kv_status status = append_rendered(c, c->messages.count - 1, false);
    if (status) {
        free_message(&c->messages.at[--c->messages.count]);
        c->line.count = begin;
        return status;
    }
    c->messages.at[c->messages.count - 1].end = c->line.count;
    return KVANT_OK;
}

kvant_status kvant_chat_pop(kvant_chat *c) {
    if (!c->messages.count) return kv_fail(KVANT_INVALID, "the conversation is empty");
    message *last = &c->messages.at[c->messages.count - 1];
    KV_TRY(cut_line(c, c->messages.count == 1 ? 0 : last->begin));
    free_message(last);
    c->messages.count--;
    return KVANT_OK;
}

kvant_status kvant_chat_clear(kvant_chat *c) {
    KV_TRY(cut_line(c, 0));
    while (c->messages.count) free_message(&c->messages.at[--c->messages.count]);
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

/* ---- dropping ---- */

/* The oldest exchange that may go: from the first message that is neither dropped nor the system's up to the
 * next user message, never the last user message. */
static bool find_exchange(const kvant_chat *c, size_t *first, size_t *end) {
    size_t n = c->messages.count, last_user = n;
    for (size_t i = 0; i < n; i++)
        if (strcmp(c->messages.at[i].role, "user") == 0) last_user = i;
    size_t i = 0;
    while (i < n && (!c->messages.at[i].in_context || strcmp(c->messages.at[i].role, "system") == 0)) i++;
    *first = i;
    do i++;
    while (i < n && strcmp(c->messages.at[i].role, "user") != 0);
    *end = i;
    return *first < last_user && *end <= last_user;
}

/* Takes the tokens of messages [first, end) out of the line and out of the cache. */
static kv_status drop_messages(kvant_chat *c, size_t first, size_t end) {
    size_t begin = c->messages.at[first].begin, behind = c->messages.at[end - 1].end, gone = behind - begin;
    int64_t cached = kv_cache_end(c->session->cache, c->seq);
    if (cached > (int64_t)begin)
        KV_TRY(kv_cache_drop(c->session->cache, c->seq, (int64_t)begin,
                             cached < (int64_t)behind ? cached : (int64_t)behind));
    memmove(c->line.at + begin, c->line.at + behind, (c->line.count - behind) * sizeof *c->line.at);
    c->line.count -= gone;
    if (c->reply_begin >= behind) c->reply_begin -= gone;
    for (size_t i = first; i < c->messages.count; i++) {
        message *m = &c->messages.at[i];
        if (i < end) {
            m->in_context = false;
            m->begin = m->end = begin;
        } else {
            m->begin -= gone;
            m->end -= gone;
        }
    }
    return KVANT_OK;
}

/* While generating: the oldest exchange goes. */
static kv_status drop_exchange(void *user, bool *made) {
    kvant_chat *c = user;
    size_t first, end;
    *made = find_exchange(c, &first, &end);
    return *made ? drop_messages(c, first, end) : KVANT_OK;
}

/* Before a reply: exchanges go until the line leaves a quarter of the context free, or none is left. */
static kv_status make_line_fit(kvant_chat *c, int32_t *n_shifts) {
    size_t n_ctx = (size_t)c->session->n_ctx, first, end;
    bool dropped = false;
    if (c->policy == KVANT_CONTEXT_SHIFT && c->line.count + n_ctx / 8 >= n_ctx)
        while (c->line.count > n_ctx - n_ctx / 4 && find_exchange(c, &first, &end)) {
            KV_TRY(drop_messages(c, first, end));
            dropped = true;
        }
    *n_shifts += dropped;
    if (c->line.count < n_ctx) return KVANT_OK;
    return kv_fail(KVANT_CONTEXT_FULL, "the conversation has %zu tokens, the context room for %zu",
                   c->line.count, n_ctx);
}

/* ---- replying ---- */

typedef struct reply_text {
    const kvant_generate_options *options;
    KV_VEC(char) text;
    bool failed;
} reply_text;

static bool collect_text(void *user, const char *text, size_t n) {
    reply_text *r = user;
    r->failed = !kv_vec_reserve(&r->text, r->text.count + n);
    if (r->failed) return false;
    memcpy(r->text.at + r->text.count, text, n);
    r->text.count += n;
    return !r->options->text || r->options->text(r->options->user, text, n);
}

/* The opening is in the line already: generates, appending to the line. */
static kv_status generate_reply(kvant_chat *c, kvant_sampler *sampler, reply_text *text,
                                kvant_generate_result *result) {
    kvant_generate_options o = *text->options;
    o.text = collect_text;
    o.user = text;
    o.context = c->policy;
    kv_tokens prompt = {0}; /* a copy: the line grows while it is evaluated */
    int64_t cached = kv_cache_end(c->session->cache, c->seq);
    size_t n = c->line.count - (size_t)cached;
    if (!kv_vec_reserve(&prompt, n)) return KVANT_NO_MEMORY;
    memcpy(prompt.at, c->line.at + cached, n * sizeof *prompt.at);
    kv_generation g = {.session = c->session,
                       .seq = c->seq,
                       .sampler = sampler->sampler,
                       .prompt = prompt.at,
                       .n_prompt = n,
                       .options = &o,
                       .generated = &c->line,
                       .make_room = drop_exchange,
                       .user = c};
    result->n_prompt = (int32_t)c->line.count;
    result->n_cached = (int32_t)cached;
    kv_status status = kv_run_generation(&g, result);
    kv_vec_clear(&prompt);
    return text->failed ? KVANT_NO_MEMORY : status;
}

/* The message that was written, closed as the template closes it: what rendering puts behind an empty reply.
 */
static kv_status append_reply(kvant_chat *c, const reply_text *text, size_t opening) {
    message m;
    size_t begin = c->reply_begin;
    KV_TRY(copy_message(&m, "assistant", "", 0));
    if (!kv_vec_push(&c->messages, m)) {
        free_message(&m);
        return KVANT_NO_MEMORY;
    }
    size_t closing = c->line.count;
    kv_status status = append_rendered(c, c->messages.count - 1, false);
    char *copy = status ? NULL : kv_strndup(text->text.at ? text->text.at : "", text->text.count);
    if (!copy) {
        free_message(&c->messages.at[--c->messages.count]);
        return status ? status : KVANT_NO_MEMORY;
    }
    /* the rendering began with the opening, which stands before the reply already */
    size_t n = c->line.count - closing, skip = n < opening ? n : opening;
    memmove(c->line.at + closing, c->line.at + closing + skip, (n - skip) * sizeof *c->line.at);
    c->line.count -= skip;
    message *last = &c->messages.at[c->messages.count - 1];
    kv_free(last->text);
    last->text = copy;
    last->begin = begin;
    last->end = c->line.count;
    return KVANT_OK;
}

static kv_status reply(kvant_chat *c, kvant_sampler *sampler, reply_text *text,
                       kvant_generate_result *result) {
    size_t begin = c->line.count;
    KV_TRY(append_rendered(c, c->messages.count, true));
    size_t opening = c->line.count - begin;
    c->reply_begin = begin;
    kv_status status = make_line_fit(c, &result->n_shifts);
    if (!status) status = generate_reply(c, sampler, text, result);
    bool keep = !status || (status == KVANT_CANCELLED && result->n_generated);
    if (keep) {
        kv_status kept = append_reply(c, text, opening);
        if (kept) status = kept, keep = false;
    }
    if (keep) return status;
    kv_status cut = cut_line(c, c->reply_begin);
    return cut ? cut : status;
}

kvant_status kvant_chat_reply(kvant_chat *c, kvant_sampler *sampler, const kvant_generate_options *options,
                              kvant_generate_result *result) {
    kvant_generate_options o = KVANT_GENERATE_OPTIONS_INIT;
    kvant_generate_result r = KVANT_GENERATE_RESULT_INIT;
    KV_TRY(kv_take_struct(&o, sizeof o, options, "kvant_generate_options"));
    if (!c->messages.count) return kv_fail(KVANT_INVALID, "the conversation is empty: nothing to reply to");
    reply_text text = {.options = &o};
    kv_status status = reply(c, sampler, &text, &r);
    kv_vec_clear(&text.text);
    if (result) kv_give_struct(result, &r, sizeof r);
    return status;
}
