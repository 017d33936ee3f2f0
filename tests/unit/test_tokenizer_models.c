/* The vocabularies of the real models against ids that another implementation gave
 * (tests/data/token_golden.txt, made by tools/make_token_golden.py), what their metadata says, how fast they
 * load, and a book there and back.
 *
 * ctest: single */
#include "text_fixture.h"

#include "base/clock.h"
#include "base/file.h"

#define MODELS KVANT_SOURCE_DIR "/.cache/models/"
#define DATA   KVANT_SOURCE_DIR "/tests/data/"

typedef struct expectation {
    const char *file, *model, *pre;
    int32_t size, bos, eos;
    bool adds_bos;
    const char *ends[3];
    const char *incomplete; /* the vocabulary cannot spell every byte */
} expectation;

static const expectation expectations[] = {
    {"smollm2-135m-q4_1.gguf", "bpe", "smollm", 49152, 1, 2, false, {"<|im_end|>", "<|endoftext|>"}, "\x04"},
    {"gemma3-270m-q4_k_m.gguf", "spm", "", 262144, 2, 1, true, {"<end_of_turn>", "<eos>"}, NULL},
    {"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
     "bpe",
     "qwen2",
     151936,
     151643,
     151645,
     false,
     {"<|im_end|>", "<|endoftext|>"},
     NULL},
};
enum { N_MODELS = sizeof expectations / sizeof *expectations };

static vocabulary open_model(const expectation *e) {
    char path[512];
    snprintf(path, sizeof path, MODELS "%s", e->file);
    return open_vocabulary(path);
}

static void test_metadata(void **state) {
    const expectation *e = *state;
    vocabulary v = open_model(e);
    const kv_tokenizer *t = v.tokenizer;
    assert_string_equal(kv_tokenizer_model(t), e->model);
    assert_string_equal(kv_tokenizer_pre(t), e->pre);
    assert_int_equal(kv_tokenizer_size(t), e->size);
    assert_int_equal(kv_tokenizer_bos(t), e->bos);
    assert_int_equal(kv_tokenizer_eos(t), e->eos);
    assert_int_equal(kv_tokenizer_adds_bos(t), e->adds_bos);
    assert_false(kv_tokenizer_adds_eos(t));
    for (int i = 0; e->ends[i]; i++)
        assert_true(kv_tokenizer_is_end(t, kv_tokenizer_find(t, e->ends[i], strlen(e->ends[i]))));
    assert_false(kv_tokenizer_is_end(t, kv_tokenizer_find(t, "a", 1)));
    int64_t start = kv_now_ns();
    kv_tokenizer *again = NULL;
    assert_ok(kv_tokenizer_create(&again, v.gguf));
    print_message("%s: the tokenizer takes %.0f ms\n", e->file, kv_seconds_since(start) * 1e3);
    kv_tokenizer_destroy(again);
    close_vocabulary(&v);
}

/* The text of a "text HEX" or "file NAME" line; owned by the caller. */
static char *read_text(const char *line, size_t *size) {
    if (strncmp(line, "file ", 5) == 0) {
        char path[512];
        kv_file_map map;
        snprintf(path, sizeof path, DATA "%s", line + 5);
        assert_ok(kv_file_map_open(&map, path));
        char *copy = kv_strndup((const char *)map.data, *size = map.size);
        kv_file_map_close(&map);
        return copy;
    }
    char *text = kv_alloc(strlen(line), 1);
    unsigned byte;
    *size = 0;
    for (line += strlen("text "); sscanf(line, "%2x", &byte) == 1; line += 2) text[(*size)++] = (char)byte;
    return text;
}

static void check_ids(const kv_tokenizer *t, const char *name, const char *ids) {
    size_t size, n = 0;
    char *text = read_text(name, &size);
    kv_tokens tokens = encode(t, text, size, (kv_encode_options){0});
    char *end = (char *)(uintptr_t)(ids += strlen("ids"));
    for (long want; (want = strtol(ids, &end, 10)), end != ids; ids = end, n++)
        if (n >= tokens.count || tokens.at[n] != want) fail_msg("%s: token %zu is not %ld", name, n, want);
    assert_int_equal(n, tokens.count);
    kv_vec_clear(&tokens);
    kv_free(text);
}

static void test_golden(void **state) {
    const expectation *e = *state;
    kv_file_map golden;
    vocabulary v = open_model(e);
    assert_ok(kv_file_map_open(&golden, DATA "token_golden.txt"));
    char *copy = kv_strndup((const char *)golden.data, golden.size), *save, *name = NULL;
    bool mine = false;
    int n = 0;
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "model ", 6) == 0) mine = strcmp(line + 6, e->file) == 0;
        if (mine && strncmp(line, "ids", 3) == 0) {
            check_ids(v.tokenizer, name, line);
            n++;
        }
        name = line;
    }
    assert_true(n > 30);
    kv_free(copy);
    kv_file_map_close(&golden);
    close_vocabulary(&v);
}

static void test_book(void **state) {
    const expectation *e = *state;
    size_t size, n;
    vocabulary v = open_model(e);
    char *book = read_text("file emma-12k.txt", &size);
    kv_tokens tokens = encode(v.tokenizer, book, size, (kv_encode_options){0});
    char *back = decode(v.tokenizer, &tokens, &n);
    assert_int_equal(n, size);
    assert_memory_equal(back, book, n);
    kv_vec_clear(&tokens);
    kv_free(back);
    if (e->incomplete) { /* what it has no letter for is U+FFFD, never a control token */
        tokens = encode(v.tokenizer, e->incomplete, 1, (kv_encode_options){0});
        back = decode(v.tokenizer, &tokens, &n);
        assert_string_equal(back, "\xef\xbf\xbd");
        kv_vec_clear(&tokens);
        kv_free(back);
    }
    kv_free(book);
    close_vocabulary(&v);
}

int main(void) {
    struct CMUnitTest tests[3 * N_MODELS];
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } cases[] = {{"metadata", test_metadata}, {"golden ids", test_golden}, {"book", test_book}};
    char names[3 * N_MODELS][80];
    for (int i = 0; i < 3 * N_MODELS; i++) {
        const expectation *e = &expectations[i / 3];
        snprintf(names[i], sizeof *names, "%s: %s", cases[i % 3].name, e->file);
        tests[i] = (struct CMUnitTest){names[i], cases[i % 3].run, NULL, NULL, (void *)(uintptr_t)e};
    }
    return cmocka_run_group_tests_name("tokenizers of the models", tests, NULL, NULL);
}
