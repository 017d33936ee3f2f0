/* chat_template.c: the table of chat formats, how one is picked, and rendering. Each message is tokenized on
 * its own, which is what makes rendering a prefix code; a control token or a word boundary lies between any
 * two. */
#define _GNU_SOURCE
#include "text/chat_template.h"

#include "base/memory.h"
#include "text/utf8.h"

#include <stdio.h>
#include <string.h>

typedef struct markup {
    const char *before, *after;
} markup;

typedef struct chat_format {
    const char *name;
    /* A template is this format's if all of these occur in it; a vocabulary, if all of these are tokens.
     * Empty: never. */
    const char *in_template[3], *in_vocabulary[3];
    markup system, user, assistant;
    const char *reply;   /* opens the assistant's message; NULL: nothing does */
    bool system_in_user; /* the system message is the beginning of the first user message; then roles
                            alternate */
    bool always_system;  /* the system message is there, if empty, when none is given */
    bool trims;          /* content without blanks around it */
    bool bos;            /* the text begins with a BOS, if there is one */
    bool bos_each_turn;  /* and so does every user message */
    bool eos;            /* an assistant's message ends with the EOS */
} chat_format;

static const chat_format formats[] = {
#define KV_CHAT_FORMAT(title, ...) {.name = title, __VA_ARGS__},
#include "text/chat_templates.inc"
#undef KV_CHAT_FORMAT
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

struct kv_chat_renderer {
    const chat_format *format;
    bool bos;
    char *default_system; /* NULL: none */
};

const char *kv_chat_format_name(int32_t i) { return i >= 0 && i < N_FORMATS ? formats[i].name : NULL; }

const char *kv_chat_renderer_name(const kv_chat_renderer *r) { return r->format->name; }

/* ---- picking ---- */

typedef struct template_text {
    const char *at;
    size_t size;
} template_text;

static const char *find(template_text s, const char *what) {
    return s.size ? memmem(s.at, s.size, what, strlen(what)) : NULL;
}

static bool template_has(template_text s, const char *const marks[3]) {
    for (int i = 0; i < 3 && marks[i]; i++)
        if (!find(s, marks[i])) return false;
    return marks[0] != NULL;
}

static bool vocabulary_has(const kv_tokenizer *t, const char *const marks[3]) {
    for (int i = 0; i < 3 && marks[i]; i++)
        if (kv_tokenizer_find(t, marks[i], strlen(marks[i])) < 0) return false;
    return marks[0] != NULL;
}

static kv_status not_found(const char *reason) {
    char list[200];
    size_t n = 0;
    for (size_t i = 0; i < N_FORMATS && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, " %s", formats[i].name);
    return kv_fail(KVANT_UNSUPPORTED, "%s; name one of the chat formats there are:%s", reason, list);
}

static kv_status pick(const chat_format **out, const char *name, template_text s, const kv_tokenizer *t) {
    char reason[100];
    for (size_t i = 0; i < N_FORMATS; i++) {
        const chat_format *f = *out = &formats[i];
        if (name     ? strcmp(name, f->name) == 0
            : s.size ? template_has(s, f->in_template)
                     : vocabulary_has(t, f->in_vocabulary))
            return KVANT_OK;
    }
    if (name) {
        snprintf(reason, sizeof reason, "there is no chat format \"%.60s\"", name);
        return not_found(reason);
    }
    if (s.size) return not_found("the file's chat template is of no known format");
    if (!name) return not_found("the file has no chat template and no control tokens of a known one");
    snprintf(reason, sizeof reason, "unknown chat format '%.40s'", name);
    return not_found(reason);
}

/* ---- the template's default system message ---- */

/* Behind the string literal `opening` in the template: the rest of the literal up to `closing`, unescaped,
 * owned; NULL if the literal ends before, or is empty. */
static kv_status literal_rest(const char *at, size_t size, char quote, const char *closing, char **out) {
    size_t n_closing = strlen(closing), n = 0;
    char *text = kv_alloc(size + 1, 1);
    if (!text) return KVANT_NO_MEMORY;
    for (size_t i = 0; i + n_closing <= size && at[i] != quote; i++) {
        if (memcmp(at + i, closing, n_closing) == 0) {
            if (n == 0) break;
            *out = text;
            return KVANT_OK;
        }
        bool escaped = at[i] == '\\' && i + 1 < size;
        i += escaped;
        text[n++] = escaped && at[i] == 'n' ? '\n' : at[i];
    }
    kv_free(text);
    return KVANT_OK;
}

/* Templates write it as one literal, markup included: '<|im_start|>system\nYou are ...<|im_end|>\n', where
 * the line break is either escaped or there. */
static kv_status find_default_system(const chat_format *f, template_text whole, char **out) {
    static const char *const line_breaks[] = {"\\n", "\n"};
    char opening[80], closing[40];
    size_t n = strcspn(f->system.before, "\n");
    if (f->system_in_user || f->always_system || n == 0) return KVANT_OK;
    snprintf(closing, sizeof closing, "%.*s", (int)strcspn(f->system.after, "\n"), f->system.after);
    for (size_t i = 0; i < 2; i++) {
        template_text s = whole;
        snprintf(opening, sizeof opening, "%.*s%s", (int)n, f->system.before, line_breaks[i]);
        for (const char *at = find(s, opening); at && !*out; at = find(s, opening)) {
            char before = at > s.at ? at[-1] : 0;
            s = (template_text){at + strlen(opening), (size_t)(whole.at + whole.size - at) - strlen(opening)};
            if (before == '\'' || before == '"') KV_TRY(literal_rest(s.at, s.size, before, closing, out));
        }
    }
    return KVANT_OK;
}

kv_status kv_chat_renderer_create(kv_chat_renderer **out, const char *name, const char *file_template,
                                  size_t template_size, const kv_tokenizer *t) {
    kv_status status;
    const chat_format *f = NULL;
    template_text s = {file_template, file_template ? template_size : 0};
    KV_TRY(pick(&f, name, s, t));
    kv_chat_renderer *r = kv_alloc(1, sizeof *r);
    if (!r) return KVANT_NO_MEMORY;
    r->format = f;
    r->bos = kv_tokenizer_bos(t) >= 0 && (f->bos || kv_tokenizer_adds_bos(t) || find(s, "bos_token"));
    if (f->always_system && !(r->default_system = kv_strdup(""))) {
        status = KVANT_NO_MEMORY;
        goto done;
    }
    KV_TRY_DONE(find_default_system(f, s, &r->default_system));
    *out = r;
    return KVANT_OK;
done:
    kv_chat_renderer_destroy(r);
    return status;
}

void kv_chat_renderer_destroy(kv_chat_renderer *r) {
    if (!r) return;
    kv_free(r->default_system);
    kv_free(r);
}

/* ---- rendering ---- */

enum role { SYSTEM, USER, ASSISTANT };

static kv_status find_role(const chat_format *f, const kv_chat_message *messages, size_t i, enum role *out) {
    static const char *const names[] = {"system", "user", "assistant"};
    const char *role = messages[i].role;
    bool first_is_system = i > 0 && strcmp(messages[0].role, "system") == 0;
    for (*out = SYSTEM; *out <= ASSISTANT; ++*out)
        if (strcmp(role, names[*out]) == 0) break;
    if (*out > ASSISTANT)
        return kv_fail(KVANT_INVALID, "message %zu: role '%.20s', expected system, user or assistant", i,
                       role);
    if (!f->system_in_user || (i == 0 && *out == SYSTEM)) return KVANT_OK;
    enum role due = (i - first_is_system) % 2 == 0 ? USER : ASSISTANT;
    if (*out == due) return KVANT_OK;
    return kv_fail(KVANT_INVALID,
                   "message %zu: role %s, %s takes one system message, then user and assistant in turns", i,
                   role, f->name);
}

static bool is_blank(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

/* Takes Unicode blanks off both ends. */
static template_text trim(template_text s) {
    uint32_t code;
    size_t end = 0;
    for (int32_t n; s.size && (n = kv_utf8_decode(s.at, s.size, &code)) && is_blank(code);
         s.size -= (size_t)n)
        s.at += n;
    for (size_t i = 0; i < s.size;) {
        int32_t n = kv_utf8_decode(s.at + i, s.size - i, &code);
        i += n ? (size_t)n : 1;
        if (!n || !is_blank(code)) end = i;
    }
    s.size = end;
    return s;
}

/* The text of one message: markup, content, markup. */
typedef struct draft {
    KV_VEC(char) text;
    kv_text_range content;
} draft;

static kv_status append(draft *d, const char *text, size_t size) {
    if (!kv_vec_reserve(&d->text, d->text.count + size)) return KVANT_NO_MEMORY;
    if (size) memcpy(d->text.at + d->text.count, text, size);
    d->text.count += size;
    return KVANT_OK;
}

static kv_status append_string(draft *d, const char *text) { return append(d, text, strlen(text)); }

static kv_status tokenize(const draft *d, const kv_tokenizer *t, kv_tokens *out, size_t begin) {
    kv_encode_options options = {.parse_special = true, .literal = &d->content, .n_literal = 1};
    if (out->count > begin) {
        kv_token_type last = kv_tokenizer_type(t, out->at[out->count - 1]);
        options.continues = last != KV_TOKEN_CONTROL && last != KV_TOKEN_USER_DEFINED;
    }
    return kv_tokenizer_encode(t, d->text.at, d->text.count, options, out);
}

static kv_status push(kv_tokens *out, int32_t token) {
    return token < 0 || kv_vec_push(out, token) ? KVANT_OK : KVANT_NO_MEMORY;
}

/* What a message is written with. `opened`: behind the system message that has opened the user's. */
static markup markup_of(const chat_format *f, enum role role, bool opened) {
    if (role == SYSTEM) return f->system;
    if (role == ASSISTANT) return f->assistant;
    return (markup){opened ? "" : f->user.before, f->user.after};
}

static kv_status render(const chat_format *f, const kv_tokenizer *t, enum role role, bool opened,
                        const char *text, kv_tokens *out, size_t begin) {
    kv_status status;
    draft d = {0};
    markup m = markup_of(f, role, opened);
    template_text content = {text, strlen(text)};
    if (f->trims && !(f->system_in_user && role == SYSTEM)) content = trim(content);
    if (role == SYSTEM && f->system_in_user) KV_TRY_DONE(append_string(&d, f->user.before));
    KV_TRY_DONE(append_string(&d, m.before));
    d.content.first = d.text.count;
    KV_TRY_DONE(append(&d, content.at, content.size));
    d.content.end = d.text.count;
    KV_TRY_DONE(append_string(&d, m.after));
    KV_TRY_DONE(tokenize(&d, t, out, begin));
    if (role == ASSISTANT && f->eos) status = push(out, kv_tokenizer_eos(t));
done:
    kv_vec_clear(&d.text);
    return status;
}

static kv_status render_reply(const chat_format *f, const kv_tokenizer *t, kv_tokens *out, size_t begin) {
    draft d = {0};
    kv_status status = append_string(&d, f->reply);
    d.content = (kv_text_range){d.text.count, d.text.count};
    if (!status) status = tokenize(&d, t, out, begin);
    kv_vec_clear(&d.text);
    return status;
}

static kv_status render_all(const kv_chat_renderer *r, const kv_tokenizer *t, const kv_chat_message *messages,
                            size_t n, kv_tokens *out, size_t *ends) {
    const chat_format *f = r->format;
    size_t begin = out->count;
    enum role role = ASSISTANT;
    if (r->bos) KV_TRY(push(out, kv_tokenizer_bos(t)));
    if (r->default_system && (n == 0 || strcmp(messages[0].role, "system") != 0))
        KV_TRY(render(f, t, SYSTEM, false, r->default_system, out, begin));
    for (size_t i = 0; i < n; i++) {
        bool opened = i == 1 && f->system_in_user && role == SYSTEM;
        KV_TRY(find_role(f, messages, i, &role));
        if (f->bos_each_turn && role == USER && i > 0 && !opened) KV_TRY(push(out, kv_tokenizer_bos(t)));
        KV_TRY(render(f, t, role, opened, messages[i].text, out, begin));
        if (ends) ends[i] = out->count;
    }
    return KVANT_OK;
}

/* The opening of an answer, where the format lets the assistant speak. */
static kv_status render_opening(const chat_format *f, const kv_tokenizer *t, const kv_chat_message *messages,
                                size_t n, kv_tokens *out, size_t begin) {
    const char *last = n ? messages[n - 1].role : "";
    bool unfinished = f->system_in_user && strcmp(last, "system") == 0;
    if (f->reply && !unfinished) return render_reply(f, t, out, begin);
    if (strcmp(last, "user") == 0) return KVANT_OK; /* its end is the opening */
    return kv_fail(KVANT_INVALID, "message %zu: in %s the assistant answers user messages only", n, f->name);
}

kv_status kv_chat_render(const kv_chat_renderer *r, const kv_tokenizer *t, const kv_chat_message *messages,
                         size_t n, bool reply, kv_tokens *out, size_t *ends) {
    size_t begin = out->count;
    kv_status status = render_all(r, t, messages, n, out, ends);
    if (!status && reply) status = render_opening(r->format, t, messages, n, out, begin);
    if (status) out->count = begin;
    return status;
}
