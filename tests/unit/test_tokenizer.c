/* Vocabularies of real models against expected ids that others made (../shared/oracles/tokenizers), round
 * trips of whole books, and SmolLM2 if it is there. Missing data is a visible skip.
 *
 * ctest: single */
#include "text_fixture.h"

#include "base/clock.h"
#include "base/file.h"

#define TEXTS KVANT_SOURCE_DIR "/../shared/texts/"

static const char *const oracle_names[] = {"deepseek-llm", "falcon", "gemma-4", "gpt-2",    "llama-bpe",
                                           "llama-spm",    "phi-3",  "qwen2",   "starcoder"};
enum { N_ORACLES = sizeof oracle_names / sizeof *oracle_names };

/* Compares one test string with its line of ids; returns whether they are equal. */
static bool ids_equal(const kv_tokens *got, const char *line, const char *name, int i) {
    size_t n = 0;
    char *end = (char *)line;
    for (long want; (want = strtol(line, &end, 10)), end != line; line = end, n++)
        if (n >= got->count || got->at[n] != want) {
            print_error("%s, string %d: token %zu is %d, expected %ld\n", name, i, n,
                        n < got->count ? got->at[n] : -1, want);
            return false;
        }
    if (n != got->count) print_error("%s, string %d: %zu tokens, expected %zu\n", name, i, got->count, n);
    return n == got->count;
}

static void check_oracle(const char *name) {
    static const char mark[] = "\n__ggml_vocab_test__\n";
    char path[512];
    kv_file_map inp, out;
    vocabulary v = open_oracle(name);
    snprintf(path, sizeof path, ORACLES "%s.inp", name);
    assert_ok(kv_file_map_open(&inp, path));
    snprintf(path, sizeof path, ORACLES "%s.out", name);
    assert_ok(kv_file_map_open(&out, path));
    char *lines = kv_strndup((const char *)out.data, out.size), *line = lines;
    const char *text = (const char *)inp.data, *end = text + inp.size;
    int n = 0, n_wrong = 0;
    while (text < end) {
        const char *stop = memmem(text, (size_t)(end - text), mark, sizeof mark - 1);
        size_t size = (size_t)((stop ? stop : end) - text);
        char *line_end = strchr(line, '\n');
        assert_non_null(line_end);
        *line_end = 0;
        kv_tokens tokens = encode(v.tokenizer, text, size, (kv_encode_options){0});
        n_wrong += !ids_equal(&tokens, line, name, n++);
        kv_vec_clear(&tokens);
        line = line_end + 1;
        text += size + sizeof mark - 1;
    }
    assert_true(n > 40);
    assert_int_equal(*line, 0);
    assert_int_equal(n_wrong, 0);
    print_message("%s: %d strings\n", name, n);
    kv_free(lines);
    kv_file_map_close(&inp);
    kv_file_map_close(&out);
    close_vocabulary(&v);
}

static void test_oracles(void **state) { check_oracle(*state); }

static void check_book(const kv_tokenizer *t, const char *name) {
    char path[512];
    kv_file_map book;
    snprintf(path, sizeof path, TEXTS "%s", name);
    assert_ok(kv_file_map_open(&book, path));
    int64_t start = kv_now_ns();
    kv_tokens tokens = encode(t, (const char *)book.data, book.size, (kv_encode_options){0});
    double seconds = kv_seconds_since(start);
    size_t n;
    char *back = decode(t, &tokens, &n);
    assert_int_equal(n, book.size);
    assert_memory_equal(back, book.data, n);
    print_message("%s: %zu tokens, %.1f MB/s\n", name, tokens.count, (double)n / seconds * 1e-6);
    kv_free(back);
    kv_vec_clear(&tokens);
    kv_file_map_close(&book);
}

static void test_books(void **state) {
    vocabulary v = open_oracle(*state);
    check_book(v.tokenizer, "emma.txt");
    check_book(v.tokenizer, "pride-and-prejudice.txt");
    close_vocabulary(&v);
}

/* Phi-3's control tokens take the blanks behind them, as its tokenizer_config.json asks; others do not. */
static void test_phi3_blanks(void **state) {
    (void)state;
    static const char text[] = "<|user|>\n  hello <|end|>\n\n<|assistant|>\n";
    static const char *const controls[] = {"<|user|>", "<|end|>", "<|assistant|>"};
    vocabulary v = open_oracle("phi-3");
    kv_tokens tokens = encode(v.tokenizer, text, sizeof text - 1, (kv_encode_options){.parse_special = true});
    kv_tokens inner = encode(v.tokenizer, "hello ", 6, (kv_encode_options){0});
    assert_int_equal(tokens.count, 3 + inner.count);
    assert_memory_equal(tokens.at + 1, inner.at, inner.count * sizeof *inner.at);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(tokens.at[i ? inner.count + i : 0],
                         kv_tokenizer_find(v.tokenizer, controls[i], strlen(controls[i])));
    kv_vec_clear(&tokens);
    tokens = encode(v.tokenizer, "<s>  x", 6, (kv_encode_options){.parse_special = true});
    assert_true(tokens.count > 2);
    kv_vec_clear(&tokens);
    kv_vec_clear(&inner);
    close_vocabulary(&v);
}

int main(void) {
    struct CMUnitTest tests[2 * N_ORACLES + 1] = {[2 * N_ORACLES] = cmocka_unit_test(test_phi3_blanks)};
    char names[2 * N_ORACLES][64];
    for (int i = 0; i < N_ORACLES; i++) {
        void *name = (void *)(uintptr_t)oracle_names[i];
        snprintf(names[2 * i], sizeof *names, "expected ids: %s", oracle_names[i]);
        snprintf(names[2 * i + 1], sizeof *names, "books: %s", oracle_names[i]);
        tests[2 * i] = (struct CMUnitTest){names[2 * i], test_oracles, NULL, NULL, name};
        tests[2 * i + 1] = (struct CMUnitTest){names[2 * i + 1], test_books, NULL, NULL, name};
    }
    return cmocka_run_group_tests_name("tokenizer oracles", tests, NULL, NULL);
}
