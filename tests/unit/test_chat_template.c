/* Chat formats against what jinja2 makes of the templates (tests/data/chat_golden.txt, made by
 * tools/make_chat_golden.py), text by text and token by token; that content never becomes control tokens;
 * that ends[] are right; that misplaced roles, foreign templates and missing memory are refused.
 *
 * ctest: single */
#include "text_fixture.h"

#include "base/file.h"
#include "text/chat_template.h"

#define DATA   KVANT_SOURCE_DIR "/tests/data/"
#define SHARED KVANT_SOURCE_DIR "/../shared/oracles/chat-templates/"
#define MODELS KVANT_SOURCE_DIR "/.cache/models/"

enum { MAX_MESSAGES = 16 };

typedef struct text {
    char *at; /* NULL: its source is not there */
    size_t size;
} text;

static text from_hex(const char *hex) {
    text t = {kv_alloc(strlen(hex) / 2 + 1, 1), 0};
    unsigned byte;
    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2) t.at[t.size++] = (char)byte;
    return t;
}

static text from_file(const char *path) {
    kv_file_map map;
    if (access(path, R_OK) != 0) return (text){0};
    assert_ok(kv_file_map_open(&map, path));
    text t = {kv_strndup((const char *)map.data, map.size), map.size};
    kv_file_map_close(&map);
    return t;
}

static text from_model(const char *path) {
    kv_gguf *g = NULL;
    kv_gguf_string s = {0};
    if (access(path, R_OK) != 0) return (text){0};
    assert_ok(kv_gguf_open(&g, path));
    assert_ok(kv_gguf_get_string(g, "tokenizer.chat_template", KV_GGUF_REQUIRED, &s));
    text t = {kv_strndup(s.at, s.size), s.size};
    kv_gguf_close(g);
    return t;
}

/* "model FILE", "shared FILE" or "own HEX" */
static text read_template(const char *line) {
    char path[512];
    if (strncmp(line, "own ", 4) == 0) return from_hex(line + 4);
    bool shared = strncmp(line, "shared ", 7) == 0;
    snprintf(path, sizeof path, "%s%s", shared ? SHARED : MODELS, line + (shared ? 7 : 6));
    text t = shared ? from_file(path) : from_model(path);
    if (!t.at) print_message("skipped: %s is not there\n", path);
    return t;
}

static vocabulary build(size_t i) {
    static vocab_spec spec;
    vocab_builders[i](&spec);
    return build_vocabulary(&spec);
}

static kv_chat_renderer *create(const kv_tokenizer *t, const char *name, const char *file_template) {
    kv_chat_renderer *r = NULL;
    assert_ok(kv_chat_renderer_create(&r, name, file_template, file_template ? strlen(file_template) : 0, t));
    return r;
}

static kv_tokens render(const kv_chat_renderer *r, const kv_tokenizer *t, const kv_chat_message *m, size_t n,
                        bool reply, size_t *ends) {
    kv_tokens tokens = {0};
    assert_ok(kv_chat_render(r, t, m, n, reply, &tokens, ends));
    return tokens;
}

static int count_controls(const kv_tokenizer *t, const kv_tokens *tokens) {
    int n = 0;
    for (size_t i = 0; i < tokens->count; i++) n += kv_tokenizer_type(t, tokens->at[i]) == KV_TOKEN_CONTROL;
    return n;
}

/* The text of the tokens with control tokens shown. */
static char *show(const kv_tokenizer *t, const kv_tokens *tokens, size_t *size) {
    char *out = kv_alloc(64 * tokens->count + 1, 1);
    *size = 0;
    for (size_t i = 0; i < tokens->count; i++) {
        const char *bytes;
        size_t n;
        assert_ok(kv_tokenizer_piece(t, tokens->at[i], true, &bytes, &n));
        memcpy(out + *size, bytes, n);
        *size += n;
    }
    return out;
}

/* Whether the text as a whole has the same tokens as its messages one by one: not where content looks like
 * markup, nor where a byte-level vocabulary sees a system message run into the user's without a control token
 * between them. */
static bool is_joinable(const kv_chat_renderer *r, const kv_tokenizer *t, const kv_chat_message *m,
                        size_t n) {
    static const char folding[] = "gemma llama2 mistral mistral-v1 mistral-v3";
    for (size_t i = 0; i < n; i++)
        if (strchr(m[i].text, '<')) return false;
    return strcmp(m[0].role, "system") != 0 || strcmp(kv_tokenizer_model(t), "bpe") != 0 ||
           !strstr(folding, kv_chat_renderer_name(r));
}

/* ends[] cut the tokens where rendering fewer messages ends. */
static void check_ends(const kv_chat_renderer *r, const kv_tokenizer *t, const kv_chat_message *m, size_t n) {
    size_t ends[MAX_MESSAGES];
    kv_tokens all = render(r, t, m, n, false, ends);
    assert_int_equal(ends[n - 1], all.count);
    for (size_t k = 1; k <= n; k++) {
        kv_tokens some = render(r, t, m, k, false, NULL);
        assert_int_equal(some.count, ends[k - 1]);
        assert_memory_equal(some.at, all.at, some.count * sizeof *some.at);
        kv_vec_clear(&some);
    }
    kv_vec_clear(&all);
}

/* As many control tokens as with harmless content: none came from the content. */
static void check_controls(const kv_chat_renderer *r, const kv_tokenizer *t, const kv_chat_message *m,
                           size_t n, const kv_tokens *tokens, bool reply) {
    kv_chat_message harmless[MAX_MESSAGES];
    for (size_t i = 0; i < n; i++) harmless[i] = (kv_chat_message){m[i].role, "x"};
    kv_tokens other = render(r, t, harmless, n, reply, NULL);
    assert_int_equal(count_controls(t, tokens), count_controls(t, &other));
    kv_vec_clear(&other);
}

static void check_case(const kv_chat_renderer *r, const kv_tokenizer *t, const kv_chat_message *m, size_t n,
                       bool reply, text expected) {
    size_t size;
    kv_tokens tokens = render(r, t, m, n, reply, NULL);
    char *got = show(t, &tokens, &size);
    if (size != expected.size || memcmp(got, expected.at, size) != 0)
        fail_msg("%s renders\n%.*s\nexpected\n%.*s", kv_chat_renderer_name(r), (int)size, got,
                 (int)expected.size, expected.at);
    if (is_joinable(r, t, m, n)) { /* the same tokens as the text as a whole gives */
        kv_tokens whole = encode(t, expected.at, expected.size, (kv_encode_options){.parse_special = true});
        assert_int_equal(tokens.count, whole.count);
        assert_memory_equal(tokens.at, whole.at, whole.count * sizeof *whole.at);
        kv_vec_clear(&whole);
    }
    check_controls(r, t, m, n, &tokens, reply);
    check_ends(r, t, m, n);
    kv_free(got);
    kv_vec_clear(&tokens);
}

/* ---- the golden file ---- */

typedef struct reading {
    vocabulary built, real; /* real: of the model that the template is for, if it is there */
    const kv_tokenizer *t;  /* the one in use */
    text file_template;
    const char *model; /* its file, if the template is a model's */
    kv_chat_renderer *r;
    kv_chat_message messages[MAX_MESSAGES];
    size_t n_messages;
    bool done; /* the messages belong to the case before */
    int n_cases;
} reading;

static void forget_messages(reading *g) {
    for (size_t i = 0; i < g->n_messages; i++) {
        kv_free((void *)(uintptr_t)g->messages[i].role);
        kv_free((void *)(uintptr_t)g->messages[i].text);
    }
    g->n_messages = 0;
    g->done = false;
}

/* Templates of real models, and Gemma's format, are tried with the real vocabulary. */
static void use_real(reading *g, const char *format) {
    char path[512];
    const char *file = strcmp(format, "gemma") == 0 ? "gemma3-270m-q4_k_m.gguf" : g->model;
    close_vocabulary(&g->real);
    g->real = (vocabulary){0};
    snprintf(path, sizeof path, MODELS "%s", file ? file : "");
    bool there = file && access(path, R_OK) == 0;
    if (there) g->real = open_vocabulary(path);
    g->t = there ? g->real.tokenizer : g->built.tokenizer;
}

/* The texts were made with "<s>" for the BOS; vocabularies have their own name for it. */
static text with_bos(const kv_tokenizer *t, text s) {
    const char *bos = "";
    size_t n = 0;
    if (s.size < 3 || memcmp(s.at, "<s>", 3) != 0) return s;
    assert_ok(kv_tokenizer_piece(t, kv_tokenizer_bos(t), true, &bos, &n));
    text out = {kv_alloc(s.size + n, 1), s.size - 3 + n};
    memcpy(out.at, bos, n);
    memcpy(out.at + n, s.at + 3, s.size - 3);
    kv_free(s.at);
    return out;
}

static void read_line(reading *g, char *line) {
    char *rest = strchr(line, ' ');
    *rest++ = 0;
    if (strcmp(line, "template") == 0) {
        kv_chat_renderer_destroy(g->r);
        g->r = NULL;
        kv_free(g->file_template.at);
        g->file_template = read_template(rest);
        g->model = strncmp(rest, "model ", 6) == 0 ? rest + 6 : NULL;
    } else if (strcmp(line, "format") == 0 && g->file_template.at) {
        use_real(g, rest);
        g->r = create(g->t, NULL, g->file_template.at);
        assert_string_equal(kv_chat_renderer_name(g->r), rest);
    } else if (strcmp(line, "message") == 0) {
        if (g->done) forget_messages(g);
        char *hex = strchr(rest, ' ');
        *hex++ = 0;
        g->messages[g->n_messages++] = (kv_chat_message){kv_strdup(rest), from_hex(hex).at};
    } else if (strcmp(line, "expect") == 0) {
        text expected = from_hex(rest + 2);
        if (g->r) expected = with_bos(g->t, expected);
        if (g->r) check_case(g->r, g->t, g->messages, g->n_messages, *rest == '1', expected);
        g->n_cases += g->r != NULL;
        g->done = true;
        kv_free(expected.at);
    }
}

static void test_golden(void **state) {
    (void)state;
    reading g = {.built = build(0)};
    text golden = from_file(DATA "chat_golden.txt");
    assert_non_null(golden.at);
    for (char *save, *line = strtok_r(golden.at, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        read_line(&g, line);
    print_message("%d cases\n", g.n_cases);
    assert_true(g.n_cases > 50);
    forget_messages(&g);
    kv_chat_renderer_destroy(g.r);
    kv_free(g.file_template.at);
    kv_free(golden.at);
    close_vocabulary(&g.real);
    close_vocabulary(&g.built);
}

/* ---- picking ---- */

static void check_unsupported(const kv_tokenizer *t, const char *name, const char *file_template) {
    kv_chat_renderer *r = NULL;
    size_t size = file_template ? strlen(file_template) : 0;
    assert_int_equal(kv_chat_renderer_create(&r, name, file_template, size, t), KVANT_UNSUPPORTED);
    assert_null(r);
    for (int32_t i = 0; kv_chat_format_name(i); i++)
        assert_non_null(strstr(kv_last_error(), kv_chat_format_name(i)));
}

static void test_picking(void **state) {
    (void)state;
    vocabulary v = build(0);
    for (int32_t i = 0; kv_chat_format_name(i); i++) {
        kv_chat_renderer *r = create(v.tokenizer, kv_chat_format_name(i), NULL);
        assert_string_equal(kv_chat_renderer_name(r), kv_chat_format_name(i));
        kv_chat_renderer_destroy(r);
    }
    kv_chat_renderer *r = create(v.tokenizer, NULL, NULL); /* by the vocabulary */
    assert_string_equal(kv_chat_renderer_name(r), "chatml");
    kv_chat_renderer_destroy(r);
    r = create(v.tokenizer, "gemma", "<|im_start|>"); /* the name wins */
    assert_string_equal(kv_chat_renderer_name(r), "gemma");
    kv_chat_renderer_destroy(r);
    check_unsupported(v.tokenizer, "nosuch", NULL);
    check_unsupported(v.tokenizer, NULL, "{{ messages }}");
    close_vocabulary(&v);
    static vocab_spec spec;
    vocab_bpe(&spec);
    for (int32_t i = 0; i < spec.n_tokens; i++)
        if (spec.types[i] == 3) spec.tokens[i] = (kv_gguf_string){"<none>", 6};
    v = build_vocabulary(&spec);
    check_unsupported(v.tokenizer, NULL, NULL);
    close_vocabulary(&v);
}

/* A BOS exactly once, in every kind of vocabulary, whether format, template or file ask for it. */
static void test_bos(void **state) {
    (void)state;
    static const kv_chat_message messages[] = {
        {"user", "hello"}, {"assistant", " hello "}, {"user", "hello"}};
    for (size_t i = 0; i < N_VOCAB_BUILDERS; i++) {
        vocabulary v = build(i);
        int32_t bos = kv_tokenizer_bos(v.tokenizer);
        for (int32_t f = 0; kv_chat_format_name(f); f++) {
            kv_chat_renderer *r = create(v.tokenizer, kv_chat_format_name(f), NULL);
            kv_tokens tokens = render(r, v.tokenizer, messages, 3, true, NULL),
                      none = render(r, v.tokenizer, NULL, 0, false, NULL);
            int n = 0;
            for (size_t k = 0; k < tokens.count; k++) n += tokens.at[k] == bos;
            bool wanted =
                kv_tokenizer_adds_bos(v.tokenizer) || !strstr("chatml phi3 plain", kv_chat_format_name(f));
            bool each_turn = strcmp(kv_chat_format_name(f), "llama2") == 0;
            assert_int_equal(n, wanted + each_turn);
            assert_int_equal(tokens.at[0] == bos, wanted);
            assert_true(none.count <= tokens.count); /* what stands in front is a prefix */
            if (none.count) assert_memory_equal(none.at, tokens.at, none.count * sizeof *none.at);
            check_ends(r, v.tokenizer, messages, 3);
            kv_vec_clear(&tokens);
            kv_vec_clear(&none);
            kv_chat_renderer_destroy(r);
        }
        close_vocabulary(&v);
    }
}

static void check_roles(const char *format, const char *roles, kv_status expected) {
    vocabulary v = build(0);
    kv_chat_renderer *r = create(v.tokenizer, format, NULL);
    kv_chat_message messages[MAX_MESSAGES];
    size_t n = strlen(roles);
    for (size_t i = 0; i < n; i++) {
        const char *role = roles[i] == 's'   ? "system"
                           : roles[i] == 'u' ? "user"
                           : roles[i] == 'a' ? "assistant"
                                             : "tool";
        messages[i] = (kv_chat_message){role, "x"};
    }
    kv_tokens tokens = {0};
    assert_true(kv_vec_push(&tokens, 7));
    assert_int_equal(kv_chat_render(r, v.tokenizer, messages, n, true, &tokens, NULL), expected);
    if (expected) assert_int_equal(tokens.count, 1); /* as before */
    if (expected) assert_non_null(strstr(kv_last_error(), "message"));
    kv_vec_clear(&tokens);
    kv_chat_renderer_destroy(r);
    close_vocabulary(&v);
}

static void test_roles(void **state) {
    (void)state;
    check_roles("chatml", "uaus", KVANT_OK);
    check_roles("chatml", "sasa", KVANT_OK);
    check_roles("chatml", "ut", KVANT_INVALID);
    check_roles("gemma", "suau", KVANT_OK);
    check_roles("gemma", "uau", KVANT_OK);
    check_roles("gemma", "us", KVANT_INVALID);
    check_roles("gemma", "uu", KVANT_INVALID);
    check_roles("gemma", "a", KVANT_INVALID);
    check_roles("gemma", "s", KVANT_INVALID);
    check_roles("llama2", "ua", KVANT_INVALID); /* nothing to answer */
    check_roles("mistral", "su", KVANT_OK);
    check_roles("mistral-v7", "su", KVANT_OK);
}

static void test_no_memory(void **state) {
    (void)state;
    static const char file_template[] = "'<|im_start|>system\\nBe \\'good\\'\\\\n<|im_end|>'";
    static const kv_chat_message messages[] = {{"user", "hello"}, {"assistant", "hello"}};
    vocabulary v = build(0);
    kv_chat_renderer *r = NULL;
    for (int64_t n = 0;; n++) {
        kv_alloc_fail_after(n);
        kv_status status =
            kv_chat_renderer_create(&r, NULL, file_template, sizeof file_template - 1, v.tokenizer);
        kv_alloc_fail_after(-1);
        if (status == KVANT_OK) break;
        assert_int_equal(status, KVANT_NO_MEMORY);
        assert_null(r);
    }
    for (int64_t n = 0;; n++) {
        kv_tokens tokens = {0};
        kv_alloc_fail_after(n);
        kv_status status = kv_chat_render(r, v.tokenizer, messages, 2, true, &tokens, NULL);
        kv_alloc_fail_after(-1);
        assert_true(status == KVANT_OK || (status == KVANT_NO_MEMORY && tokens.count == 0));
        if (status == KVANT_OK) {
            size_t size;
            static const char expected[] =
                "<|im_start|>system\nBe 'good'\\n<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
                "<|im_start|>assistant\nhello<|im_end|>\n<|im_start|>assistant\n";
            char *got = show(v.tokenizer, &tokens, &size);
            assert_string_equal(got, expected);
            kv_free(got);
        }
        kv_vec_clear(&tokens);
        if (status == KVANT_OK) break;
    }
    kv_chat_renderer_destroy(r);
    kv_chat_renderer_destroy(NULL);
    close_vocabulary(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_picking),   cmocka_unit_test(test_bos),
        cmocka_unit_test(test_roles),  cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("chat formats", tests, NULL, NULL);
}
