/* Any bytes can be tokenized, and byte-complete vocabularies give them back (field report F33): all strings
 * of one and two bytes, random ones, malformed UTF-8, NUL, a megabyte of one letter. On vocabularies built
 * here, and on real ones where they are.
 *
 * ctest: single */
#include "text_fixture.h"

#include "base/clock.h"
#include "base/random.h"
#include "text/pretokenizer.h"

#include <pthread.h>

static const char *const complete_names[] = {"gpt-2", "llama-bpe", "qwen2", "llama-spm", "phi-3", "gemma-4"};
enum { N_COMPLETE = sizeof complete_names / sizeof *complete_names };

static vocabulary build(size_t i) {
    static vocab_spec spec;
    vocab_builders[i](&spec);
    return build_vocabulary(&spec);
}

/* U+2581 reads as a space in SentencePiece vocabularies: the one text that cannot come back. */
static bool is_ambiguous(const kv_tokenizer *t, const char *text, size_t size) {
    return strcmp(kv_tokenizer_model(t), "bpe") != 0 && memmem(text, size, "\xe2\x96\x81", 3);
}

static void check_round_trip(const kv_tokenizer *t, const char *text, size_t size) {
    size_t n;
    kv_tokens tokens = encode(t, text, size, (kv_encode_options){0});
    char *back = decode(t, &tokens, &n);
    if (!is_ambiguous(t, text, size) && (n != size || memcmp(back, text, n) != 0)) {
        print_error("%s, %zu bytes:", kv_tokenizer_model(t), size);
        for (size_t i = 0; i < size; i++) print_error(" %02x", (uint8_t)text[i]);
        fail_msg(": comes back as %zu bytes", n);
    }
    kv_free(back);
    kv_vec_clear(&tokens);
}

static void check_short(const kv_tokenizer *t) {
    check_round_trip(t, "", 0);
    for (int i = 0; i < 256; i++) {
        check_round_trip(t, &(char){(char)i}, 1);
        for (int k = 0; k < 256; k++) check_round_trip(t, (char[]){(char)i, (char)k}, 2);
    }
}

static void check_random(const kv_tokenizer *t, int n_strings) {
    static const char *const parts[] = {
        "hello", " world", "\xe2\x82", "\xed\xa0\x80", "\xf0\x9f\x98\x80", "\xc0\x80", "<|im_end|>",
        "<s>",   "  ",     "\n\n",     "aaaa",         "123456",           "'ll",      "\xff"};
    kv_random r;
    kv_random_init(&r, 11);
    for (int i = 0; i < n_strings; i++) {
        char text[80];
        size_t n = 0, limit = kv_random_u64(&r) % 65;
        while (n < limit) {
            const char *part = parts[kv_random_u64(&r) % (sizeof parts / sizeof *parts)];
            size_t n_part = i % 2 ? strlen(part) : 1;
            if (i % 2)
                memcpy(text + n, part, n_part);
            else
                text[n] = (char)kv_random_u64(&r);
            n += n_part;
        }
        check_round_trip(t, text, n);
    }
}

static void test_built(void **state) {
    (void)state;
    for (size_t i = 0; i < N_VOCAB_BUILDERS; i++) {
        vocabulary v = build(i);
        check_short(v.tokenizer);
        check_random(v.tokenizer, 100000);
        close_vocabulary(&v);
    }
}

static void test_real(void **state) {
    vocabulary v = open_oracle(*state);
    for (int i = 0; i < 256; i++) check_round_trip(v.tokenizer, &(char){(char)i}, 1);
    check_random(v.tokenizer, 10000);
    close_vocabulary(&v);
}

/* A quadratic algorithm needs minutes for this; alarm() then ends the test. */
static void test_long(void **state) {
    (void)state;
    enum { SIZE = 1 << 20, HANG_SECONDS = 300 };
    static const char *const units[] = {"a",  " ",      "\n",        "\xff", "<", "1", "\xe6\xad\xaa",
                                        "ab", "hello ", "<|im_end|>"};
    char *text = kv_alloc(SIZE, 1);
    alarm(HANG_SECONDS);
    for (size_t i = 0; i < N_VOCAB_BUILDERS; i++) {
        vocabulary v = build(i);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t n = strlen(units[u]), size = SIZE / n * n;
            for (size_t k = 0; k < size; k++) text[k] = units[u][k % n];
            int64_t start = kv_now_ns();
            check_round_trip(v.tokenizer, text, size);
            double seconds = kv_seconds_since(start);
            if (seconds > 1)
                print_message("%s, 1 MB of text %zu: %.1f s\n", kv_tokenizer_model(v.tokenizer), u, seconds);
        }
        close_vocabulary(&v);
    }
    alarm(0);
    kv_free(text);
}

/* Every pre-tokenizer, on text whose words are as long as it gets .
 */
static void test_patterns(void **state) {
    (void)state;
    enum { SIZE = 300000 };
    static const char *const names[] = {"default",        "gpt-2",       "llama-bpe", "glm4",
                                        "qwen2",          "smollm",      "falcon",    "deepseek-llm",
                                        "deepseek-coder", "deepseek-v3", "gpt-4o",    "tekken"};
    static const char *const units[] = {"a",    "aB", "\xe6\xad\xaa",         "\xcc\x81", " ",
                                        "\r\n", "1",  "hello world 42, I'll "};
    static vocab_spec spec;
    char *text = kv_alloc(SIZE, 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        vocab_bpe(&spec);
        vocab_set_string(&spec, "tokenizer.ggml.pre", names[i]);
        vocabulary v = build_vocabulary(&spec);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t n = strlen(units[u]);
            for (size_t k = 0; k < SIZE; k++) text[k] = units[u][k % n];
            check_round_trip(v.tokenizer, text, SIZE / n * n);
        }
        check_random(v.tokenizer, 1000);
        close_vocabulary(&v);
    }
    kv_free(text);
}

/* A pattern whose groups need the JIT's stack: its own is not enough for the first word, the biggest not for
 * the second, which the interpreter then does. */
static void test_stack(void **state) {
    (void)state;
    static const kv_pretokenizer deep = {.names = {"deep"},
                                         .patterns = {"((?=\\p{L})([^a-z]))*((?=\\p{L})([^A-Z]))+"}};
    static const size_t sizes[] = {300000, 6000000};
    kv_splitter *s = NULL;
    char *text = kv_alloc(sizes[1], 1);
    for (size_t i = 0; i < sizes[1]; i++) text[i] = "\xe6\xad\xaa"[i % 3];
    assert_ok(kv_splitter_create(&s, &deep));
    for (size_t i = 0; i < 2; i++) {
        kv_words words = {0};
        assert_ok(kv_splitter_run(s, text, sizes[i], &words));
        assert_int_equal(words.count, 1);
        assert_int_equal(words.at[0], sizes[i]);
        kv_vec_clear(&words);
    }
    kv_splitter_destroy(s);
    kv_free(text);
}

typedef struct shared_work {
    const kv_tokenizer *t;
    kv_tokens expected;
    bool equal;
} shared_work;

static const char shared_text[] = "hello world 123, hello  <|im_end|> \xf0\x9f\x98\x80\xff aaaaaaaa";

static void *encode_often(void *user) {
    shared_work *w = user;
    w->equal = true;
    for (int i = 0; i < 300 && w->equal; i++) {
        kv_tokens tokens = {0};
        w->equal =
            !kv_tokenizer_encode(w->t, shared_text, sizeof shared_text, (kv_encode_options){0}, &tokens) &&
            tokens.count == w->expected.count &&
            memcmp(tokens.at, w->expected.at, tokens.count * sizeof *tokens.at) == 0;
        kv_vec_clear(&tokens);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    enum { N_THREADS = 4 };
    for (size_t i = 0; i < N_VOCAB_BUILDERS; i++) {
        vocabulary v = build(i);
        kv_tokens expected = encode(v.tokenizer, shared_text, sizeof shared_text, (kv_encode_options){0});
        pthread_t threads[N_THREADS];
        shared_work work[N_THREADS];
        for (int k = 0; k < N_THREADS; k++) {
            work[k] = (shared_work){.t = v.tokenizer, .expected = expected};
            assert_int_equal(pthread_create(&threads[k], NULL, encode_often, &work[k]), 0);
        }
        for (int k = 0; k < N_THREADS; k++) {
            pthread_join(threads[k], NULL);
            assert_true(work[k].equal);
        }
        kv_vec_clear(&expected);
        close_vocabulary(&v);
    }
}

static void test_control_tokens(void **state) {
    (void)state;
    static const char text[] = "hello<|im_end|>hello<tool>";
    for (size_t i = 0; i < N_VOCAB_BUILDERS; i++) {
        vocabulary v = build(i);
        int32_t control = kv_tokenizer_find(v.tokenizer, "<|im_end|>", 10);
        int32_t user_defined = kv_tokenizer_find(v.tokenizer, "<tool>", 6);
        for (int mode = 0; mode < 3; mode++) {
            kv_text_range literal = {6, 7}; /* one byte of it is enough */
            kv_encode_options o = {.parse_special = mode > 0, .literal = &literal, .n_literal = mode == 2};
            kv_tokens tokens = encode(v.tokenizer, text, sizeof text - 1, o);
            int n_control = 0;
            for (size_t k = 0; k < tokens.count; k++) n_control += tokens.at[k] == control;
            assert_int_equal(n_control, mode == 1);
            assert_int_equal(tokens.at[tokens.count - 1], user_defined);
            kv_vec_clear(&tokens);
        }
        close_vocabulary(&v);
    }
}

static void test_bos_and_prefix(void **state) {
    (void)state;
    vocabulary v = build(1);
    kv_tokens plain = encode(v.tokenizer, "hello", 5, (kv_encode_options){0});
    kv_tokens special = encode(v.tokenizer, "hello", 5, (kv_encode_options){.add_special = true});
    kv_tokens more =
        encode(v.tokenizer, "hello", 5, (kv_encode_options){.add_special = true, .continues = true});
    int32_t prefixed = kv_tokenizer_find(v.tokenizer, "\xe2\x96\x81hello", 8),
            bare = kv_tokenizer_find(v.tokenizer, "hello", 5);
    assert_int_equal(plain.count, 1);
    assert_int_equal(plain.at[0], prefixed);
    assert_int_equal(special.count, 2);
    assert_int_equal(special.at[0], kv_tokenizer_bos(v.tokenizer));
    assert_int_equal(special.at[1], prefixed);
    assert_int_equal(more.count, 1);
    assert_int_equal(more.at[0], bare);
    kv_vec_clear(&plain);
    kv_vec_clear(&special);
    kv_vec_clear(&more);
    kv_tokens empty = encode(v.tokenizer, "", 0, (kv_encode_options){.add_special = true});
    assert_int_equal(empty.count, 1);
    kv_vec_clear(&empty);
    close_vocabulary(&v);
}

enum { N_OWN = 7 };

int main(void) {
    struct CMUnitTest tests[N_OWN + N_COMPLETE] = {
        cmocka_unit_test(test_built),          cmocka_unit_test(test_long),
        cmocka_unit_test(test_threads),        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_control_tokens), cmocka_unit_test(test_bos_and_prefix),
        cmocka_unit_test(test_stack),
    };
    char names[N_COMPLETE][40];
    for (int i = 0; i < N_COMPLETE; i++) {
        snprintf(names[i], sizeof *names, "any bytes: %s", complete_names[i]);
        tests[N_OWN + i] =
            (struct CMUnitTest){names[i], test_real, NULL, NULL, (void *)(uintptr_t)complete_names[i]};
    }
    return cmocka_run_group_tests_name("tokenizer on any bytes", tests, NULL, NULL);
}
