/* fuzz_chat.c: messages through a chat format. The first byte chooses the format, or that the input begins
 * with a template of its own (up to a 0 byte); then messages, each {role, text, 0 byte}. No control token may
 * come from a text, ends[] must agree with rendering fewer messages, and misplaced roles are an error, not a
 * crash. */
#include "text/chat_template.h"
#include "vocab_builder.h"

enum { MAX_MESSAGES = 8, OWN_TEMPLATE = 128, REPLY = 64, VOCABULARY = 48, FORMAT = 15 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const kv_tokenizer *tokenizer(size_t i) {
    static struct {
        vocab_bytes bytes;
        kv_gguf *gguf;
        kv_tokenizer *tokenizer;
    } made[N_VOCAB_BUILDERS];
    static vocab_spec spec;
    if (!made[i].tokenizer) {
        vocab_builders[i](&spec);
        made[i].bytes = vocab_write(&spec);
        if (kv_gguf_open_memory(&made[i].gguf, made[i].bytes.at, made[i].bytes.count)) abort();
        if (kv_tokenizer_create(&made[i].tokenizer, made[i].gguf)) abort();
    }
    return made[i].tokenizer;
}

static size_t count_controls(const kv_tokenizer *t, const kv_tokens *tokens) {
    size_t n = 0;
    for (size_t i = 0; i < tokens->count; i++) n += kv_tokenizer_type(t, tokens->at[i]) == KV_TOKEN_CONTROL;
    return n;
}

static void check(const kv_chat_renderer *r, const kv_tokenizer *t, const kv_chat_message *m, size_t n,
                  bool reply) {
    kv_tokens all = {0}, some = {0}, plain = {0};
    kv_chat_message harmless[MAX_MESSAGES];
    size_t ends[MAX_MESSAGES];
    kv_status status = kv_chat_render(r, t, m, n, reply, &all, ends);
    for (size_t i = 0; i < n; i++) harmless[i] = (kv_chat_message){m[i].role, "x"};
    if (kv_chat_render(r, t, harmless, n, reply, &plain, NULL) != status) abort();
    if (status && all.count) abort();
    if (count_controls(t, &all) != count_controls(t, &plain)) abort();
    for (size_t k = 1; !status && k <= n; k++) {
        some.count = 0;
        if (kv_chat_render(r, t, m, k, false, &some, NULL)) abort();
        if (some.count != ends[k - 1] || some.count > all.count) abort();
        if (memcmp(some.at, all.at, some.count * sizeof *some.at) != 0) abort();
    }
    kv_vec_clear(&all);
    kv_vec_clear(&some);
    kv_vec_clear(&plain);
}

/* Cuts the rest of the input at its 0 bytes. */
static size_t read_messages(char *at, const char *end, kv_chat_message *m) {
    static const char *const roles[] = {"system", "user", "assistant", "tool", ""};
    size_t n = 0;
    while (n < MAX_MESSAGES && at < end) {
        m[n].role = roles[(uint8_t)*at % 5];
        if (*at) at++;
        m[n++].text = at;
        at += strlen(at) + 1;
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    kv_chat_renderer *r = NULL;
    kv_chat_message messages[MAX_MESSAGES];
    uint8_t choice = *data;
    const kv_tokenizer *t = tokenizer((choice & VOCABULARY) / 16 % N_VOCAB_BUILDERS);
    char *text = kv_strndup((const char *)data + 1, size - 1), *at = text, *end = text + size - 1;
    if (!text) return 0;
    bool own = choice & OWN_TEMPLATE;
    const char *name = own ? NULL : kv_chat_format_name(choice & FORMAT);
    if (own) at += strlen(at) + 1;
    if ((own || name) && !kv_chat_renderer_create(&r, name, text, own ? strlen(text) : 0, t))
        check(r, t, messages, read_messages(at, end, messages), choice & REPLY);
    kv_chat_renderer_destroy(r);
    kv_free(text);
    return 0;
}
