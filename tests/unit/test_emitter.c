/* The emitter: generated tokens to text. Bytes come as single tokens, cut anywhere; what goes out is whole
 * characters, nothing of a stop string, and nothing more once it was told to stop.
 *
 * ctest: single */
#include "text_fixture.h"

#include "engine/emitter.h"

typedef struct sink {
    char text[256];
    size_t n;
    int n_calls, stop_at;
} sink;

static bool receive(void *user, const char *text, size_t n) {
    sink *s = user;
    uint32_t code;
    for (size_t i = 0; i < n;) { /* every piece is valid text by itself */
        int32_t length = kv_utf8_decode(text + i, n - i, &code);
        assert_true(length > 0);
        i += (size_t)length;
    }
    assert_true(n > 0 && s->n + n < sizeof s->text);
    memcpy(s->text + s->n, text, n);
    s->n += n;
    s->text[s->n] = 0;
    return ++s->n_calls != s->stop_at;
}

/* The text that the bytes of `from`, one token each, come out as. */
static bool run(const kv_tokenizer *t, sink *s, const char *from, const char *const *stop, int32_t n_stop) {
    kv_emitter e = {.tokenizer = t, .stop = stop, .n_stop = n_stop, .text = receive, .user = s};
    for (const char *c = from; *c && !e.stopped; c++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned char)*c);
        int32_t token = kv_tokenizer_find(t, name, strlen(name));
        assert_true(token >= 0);
        assert_ok(kv_emitter_push(&e, token));
    }
    bool stopped = e.stopped;
    assert_ok(kv_emitter_flush(&e));
    kv_emitter_clear(&e);
    return stopped;
}

typedef struct emitter_case {
    const char *from, *stop[3], *to;
    bool stopped;
} emitter_case;

static const emitter_case cases[] = {
    {"plain", {0}, "plain", false},
    {"\xf0\x9f\x98\x80 \xe6\xad\xaa", {0}, "\xf0\x9f\x98\x80 \xe6\xad\xaa", false},
    {"cut \xc3", {0}, "cut \xef\xbf\xbd", false}, /* ends within a character */
    {"x\xff\xfey", {0}, "x\xef\xbf\xbd\xef\xbf\xbdy", false},
    {"one STOP two", {"STOP"}, "one ", true},
    {"one STO two", {"STOP"}, "one STO two", false}, /* only the beginning of one */
    {"one STO", {"STOP"}, "one STO", false},         /* held, then given out in the end */
    {"aabaabaac", {"aabaac"}, "aab", true},          /* begins again within itself */
    {"one two three", {"three", "two", "o t"}, "one ", true},
    {"one\n\ntwo", {"\n\n", "zzz"}, "one", true},
    {"none", {"", ""}, "none", false}, /* empty strings stop nothing */
    {"STOP", {"STOP"}, "", true},
    {"\xc3\xa4\xc3\xb6", {"\xc3\xb6"}, "\xc3\xa4", true},
};

static void test_cases(void **state) {
    vocabulary v = open_vocabulary(KVANT_SOURCE_DIR "/tests/data/tiny1.gguf");
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const emitter_case *c = &cases[i];
        int32_t n_stop = 0;
        sink s = {.n = 0};
        while (n_stop < 3 && c->stop[n_stop]) n_stop++;
        assert_int_equal(run(v.tokenizer, &s, c->from, c->stop, n_stop), c->stopped);
        assert_string_equal(s.text, c->to);
    }
    close_vocabulary(&v);
}

static void test_no_is_no(void **state) {
    vocabulary v = open_vocabulary(KVANT_SOURCE_DIR "/tests/data/tiny1.gguf");
    const char *stop[] = {"lo w", "never"};
    (void)state;
    for (int at = 1; at < 4; at++) {
        sink s = {.stop_at = at};
        assert_true(run(v.tokenizer, &s, "hel\xc3\xb6 n\xff", stop, 2));
        assert_int_equal(s.n_calls, at); /* nor at the end, for what was held */
    }
    close_vocabulary(&v);
}

static void test_without_memory(void **state) {
    vocabulary v = open_vocabulary(KVANT_SOURCE_DIR "/tests/data/tiny1.gguf");
    kv_emitter e = {.tokenizer = v.tokenizer};
    (void)state;
    kv_alloc_fail_after(0);
    kv_status status = kv_emitter_push(&e, 300);
    kv_alloc_fail_after(-1);
    assert_int_equal(status, KVANT_NO_MEMORY);
    assert_ok(kv_emitter_push(&e, 300)); /* nobody listens */
    assert_int_equal(kv_emitter_push(&e, -1), KVANT_INVALID);
    assert_ok(kv_emitter_flush(&e));
    kv_emitter_clear(&e);
    close_vocabulary(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_no_is_no),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests_name("emitter", tests, NULL, NULL);
}
