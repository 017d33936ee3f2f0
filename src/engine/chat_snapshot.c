/* chat_snapshot.c: a conversation in a snapshot's note, so that it goes on from where it stood: what was
 * generated stays the tokens it was, what was dropped stays dropped, and nothing is read again.
 *
 *     u32 version  text template  u32 n_line, line tokens  u32 n_messages, each: text role  text content
 *                                                          u32 begin  u32 end (tokens of the line)  u32
 * in_context
 */
#include "engine/chat.h"
#include "engine/session_snapshot.h"

#include <string.h>

enum { NOTE_VERSION = 1, MESSAGE_BYTES = 20 };

/* ---- saving ---- */

static void put_message(kv_byte_writer *w, const kv_chat_entry *m) {
    kv_put_text(w, m->role);
    kv_put_text(w, m->text);
    kv_put_u32(w, (uint32_t)m->begin);
    kv_put_u32(w, (uint32_t)m->end);
    kv_put_u32(w, m->in_context);
}

static void put_chat(kv_byte_writer *w, const kvant_chat *c) {
    kv_put_u32(w, NOTE_VERSION);
    kv_put_text(w, kvant_chat_template(c));
    kv_put_u32(w, (uint32_t)c->line.count);
    for (size_t i = 0; i < c->line.count; i++) kv_put_u32(w, (uint32_t)c->line.at[i]);
    kv_put_u32(w, (uint32_t)c->messages.count);
    for (size_t i = 0; i < c->messages.count; i++) put_message(w, &c->messages.at[i]);
}

kvant_status kvant_chat_save(const kvant_chat *c, const char *path) {
    kv_byte_writer note = {0};
    if (!path) return kv_fail(KVANT_INVALID, "kvant_chat_save: path must not be NULL");
    put_chat(&note, c);
    kv_status status = note.failed
                           ? KVANT_NO_MEMORY
                           : kv_session_save(c->session, c->seq, path, note.bytes.at, note.bytes.count);
    kv_vec_clear(&note.bytes);
    return status;
}

/* ---- loading ---- */

/* What a file says, until all of it is known to be good. */
typedef struct loaded {
    kv_chat_entries messages;
    kv_tokens line;
} loaded;

static kv_status malformed(const char *what) {
    return kv_fail(KVANT_FORMAT, "malformed: %s of the conversation", what);
}

static kv_status take_line(loaded *out, kv_byte_reader *b, int32_t n_vocab) {
    uint32_t n = kv_take_u32(b);
    if (n > kv_bytes_left(b) / 4) return malformed("the line");
    if (!kv_vec_reserve(&out->line, n)) return KVANT_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        int32_t token = (int32_t)kv_take_u32(b);
        if (token < 0 || token >= n_vocab) return malformed("a token");
        out->line.at[out->line.count++] = token;
    }
    return KVANT_OK;
}

static kv_status take_message(loaded *out, kv_byte_reader *b) {
    kv_byte_text role = kv_take_text(b), text = kv_take_text(b);
    size_t least = out->messages.count ? out->messages.at[out->messages.count - 1].end : 0;
    size_t begin = kv_take_u32(b), end = kv_take_u32(b), in_context = kv_take_u32(b);
    bool known = kv_byte_text_is(role, "system") || kv_byte_text_is(role, "user") ||
                 kv_byte_text_is(role, "assistant");
    if (b->failed || !known || begin < least || end < begin || end > out->line.count || in_context > 1 ||
        memchr(text.at, 0, text.size))
        return malformed("a message");
    kv_chat_entry m = {.role = kv_strndup(role.at, role.size),
                       .text = kv_strndup(text.at, text.size),
                       .begin = begin,
                       .end = end,
                       .in_context = in_context};
    if (m.role && m.text && kv_vec_push(&out->messages, m)) return KVANT_OK;
    kv_free(m.role);
    kv_free(m.text);
    return KVANT_NO_MEMORY;
}

static kv_status take_chat(loaded *out, const kvant_chat *c, const kv_snapshot *s) {
    kv_byte_reader b = {.at = s->note, .end = s->note + s->n_note};
    if (!s->n_note) return kv_fail(KVANT_INVALID, "no conversation in it");
    if (kv_take_u32(&b) != NOTE_VERSION) return malformed("the version");
    kv_byte_text template = kv_take_text(&b);
    if (b.failed) return malformed("the template");
    if (!kv_byte_text_is(template, kvant_chat_template(c)))
        return kv_fail(KVANT_INVALID, "a conversation in template %.*s, here %s",
                       (int)(template.size < 32 ? template.size : 32), template.at, kvant_chat_template(c));
    KV_TRY(take_line(out, &b, s->n_vocab));
    uint32_t n = kv_take_u32(&b);
    if (n > kv_bytes_left(&b) / MESSAGE_BYTES) return malformed("the number of messages");
    for (uint32_t i = 0; i < n; i++) KV_TRY(take_message(out, &b));
    return b.failed || b.at != b.end ? malformed("the end") : KVANT_OK;
}

/* What the sequence holds must be the beginning of the line, position by position. */
static kv_status check_line(const loaded *state, const kv_snapshot *s) {
    const kv_spans *spans = &s->groups[0].spans;
    bool fits = spans->n_cells == kv_spans_end(spans) && (size_t)s->n_tokens <= state->line.count;
    for (int64_t i = 0; fits && i < s->n_tokens; i++) {
        int32_t token = kv_snapshot_token(s, i);
        fits = token < 0 || token == state->line.at[i];
    }
    return fits ? KVANT_OK : malformed("cells that are not");
}

static kv_status load(kvant_chat *c, const kv_snapshot *s, loaded *state) {
    KV_TRY(take_chat(state, c, s));
    KV_TRY(check_line(state, s));
    KV_TRY(kv_session_restore(c->session, c->seq, s));
    loaded before = {c->messages, c->line};
    c->messages = state->messages;
    c->line = state->line;
    *state = before;
    return KVANT_OK;
}

kvant_status kvant_chat_load(kvant_chat *c, const char *path) {
    kv_snapshot *s = NULL;
    loaded state = {0};
    if (!path) return kv_fail(KVANT_INVALID, "kvant_chat_load: path must not be NULL");
    KV_TRY(kv_session_open_snapshot(&s, c->session, path));
    kv_status status = load(c, s, &state);
    if (status && status != KVANT_NO_MEMORY) kv_fail_in(status, "%s", path);
    kv_chat_entries_clear(&state.messages);
    kv_vec_clear(&state.line);
    kv_snapshot_close(s);
    return status;
}
