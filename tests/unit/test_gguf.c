/* test_gguf.c: reading good GGUF files: what gguf-py wrote (tools/make_gguf_golden.py says what is in it),
 * sets of files, real models, typed getters. Hostile files: test_gguf_hostile.c.
 *
 * ctest: single */
#include "base/memory.h"
#include "gguf/gguf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DATA KVANT_SOURCE_DIR "/tests/data/"

static kv_gguf *open_file(const char *path) {
    kv_gguf *g = NULL;
    if (kv_gguf_open(&g, path)) fail_msg("%s", kv_last_error());
    return g;
}

/* The call failed and the message holds `part`. */
static void expect_failure(kv_status status, const char *part) {
    assert_int_not_equal(status, KVANT_OK);
    if (!strstr(kv_last_error(), part))
        fail_msg("the message \"%s\" does not say \"%s\"", kv_last_error(), part);
}

/* ---- tensors of gguf-py ---- */

static void check_tensors(const kv_gguf *g) {
    static const struct {
        const char *name;
        const kv_dtype *dtype;
        int32_t n_dims;
        int64_t dims[4];
        float tolerance;
    } expected[] = {{"token_embd.weight", &kv_dtype_q8_0, 2, {32, 6, 1, 1}, 1.0f},
                    {"blk.0.attn_norm.weight", &kv_dtype_f32, 1, {5, 1, 1, 1}, 0},
                    {"blk.0.attn_q.weight", &kv_dtype_f16, 2, {64, 4, 1, 1}, 0},
                    {"blk.0.cube", &kv_dtype_f32, 4, {5, 4, 3, 2}, 0},
                    {"output.weight", &kv_dtype_bf16, 2, {32, 3, 1, 1}, 2.0f}};
    assert_int_equal(kv_gguf_n_tensors(g), 5);
    for (int t = 0; t < 5; t++) {
        const kv_gguf_tensor *tensor = kv_gguf_find_tensor(g, expected[t].name);
        assert_non_null(tensor);
        assert_ptr_equal(tensor, kv_gguf_tensor_at(g, t));
        assert_ptr_equal(tensor->dtype, expected[t].dtype);
        assert_int_equal(tensor->n_dims, expected[t].n_dims);
        assert_memory_equal(tensor->dims, expected[t].dims, sizeof tensor->dims);
        int64_t n = tensor->dims[0] * tensor->dims[1] * tensor->dims[2] * tensor->dims[3];
        assert_int_equal(tensor->bytes, kv_dtype_bytes(tensor->dtype, n));
        float x[256];
        tensor->dtype->decode(x, tensor->data, n);
        for (int64_t i = 0; i < n; i++)
            assert_true(fabsf(x[i] - (float)(i + 100 * t)) <= expected[t].tolerance);
    }
    assert_null(kv_gguf_find_tensor(g, "output.weigh"));
    assert_null(kv_gguf_find_tensor(g, ""));
}

static void test_gguf_py_tensors(void **state) {
    (void)state;
    kv_gguf *g = open_file(DATA "gguf_py.gguf");
    check_tensors(g);
    assert_int_equal(kv_gguf_version(g), 3);
    for (int64_t i = 0; i < 5; i++) kv_gguf_release_tensor(g, kv_gguf_tensor_at(g, i));
    check_tensors(g); /* released pages come back */
    kv_gguf_close(g);
}

static void test_set(void **state) {
    (void)state;
    kv_gguf *g = open_file(DATA "gguf_py_set-00001-of-00003.gguf");
    int32_t value = 0;
    check_tensors(g);
    assert_int_equal(kv_gguf_get_i32(g, "test.u32", KV_GGUF_REQUIRED, &value), KVANT_OK);
    assert_int_equal(value, 7);
    assert_int_equal(kv_gguf_file_bytes(g), 544 + 1248 + 352);
    kv_gguf_close(g);
    expect_failure(kv_gguf_open(&g, DATA "gguf_py_set-00002-of-00003.gguf"), "open the first one");
}

/* ---- values of gguf-py ---- */

static void check_i32(const kv_gguf *g, const char *key, int32_t expected) {
    int32_t x = 0;
    if (kv_gguf_get_i32(g, key, KV_GGUF_REQUIRED, &x)) fail_msg("%s", kv_last_error());
    assert_int_equal(x, expected);
}

static void test_numbers(void **state) {
    (void)state;
    kv_gguf *g = open_file(DATA "gguf_py.gguf");
    int32_t i = 77;
    float x = 77;
    bool b = false;
    check_i32(g, "test.u8", 200);
    check_i32(g, "test.i8", -100);
    check_i32(g, "test.u16", 60000);
    check_i32(g, "test.i16", -30000);
    check_i32(g, "test.i32", -2000000000);
    expect_failure(kv_gguf_get_i32(g, "test.u32", KV_GGUF_REQUIRED, &i),
                   "key test.u32: 4000000000, not from -2147483648");
    expect_failure(kv_gguf_get_i32(g, "test.u64", KV_GGUF_REQUIRED, &i), "18446744073709551615");
    expect_failure(kv_gguf_get_i32(g, "test.i64", KV_GGUF_OPTIONAL, &i), "-9223372036854775808");
    expect_failure(kv_gguf_get_i32(g, "test.f32", KV_GGUF_OPTIONAL, &i), "f32, not an integer");
    expect_failure(kv_gguf_get_i32(g, "test.yes", KV_GGUF_OPTIONAL, &i), "bool, not an integer");
    expect_failure(kv_gguf_get_i32(g, "test.ints", KV_GGUF_OPTIONAL, &i), "array of i32, not an integer");
    assert_int_equal(i, 77);

    assert_int_equal(kv_gguf_get_f32(g, "test.f32", KV_GGUF_REQUIRED, &x), KVANT_OK);
    assert_true(x == 1.5f);
    assert_int_equal(kv_gguf_get_f32(g, "test.f64", KV_GGUF_REQUIRED, &x), KVANT_OK);
    assert_true(x == -2.25f);
    expect_failure(kv_gguf_get_f32(g, "test.u8", KV_GGUF_OPTIONAL, &x), "u8, not a float");

    assert_int_equal(kv_gguf_get_bool(g, "test.yes", KV_GGUF_REQUIRED, &b), KVANT_OK);
    assert_true(b);
    assert_int_equal(kv_gguf_get_bool(g, "test.no", KV_GGUF_REQUIRED, &b), KVANT_OK);
    assert_false(b);
    expect_failure(kv_gguf_get_bool(g, "test.u8", KV_GGUF_OPTIONAL, &b), "u8, not a bool");
    kv_gguf_close(g);
}

static void test_absent(void **state) {
    (void)state;
    kv_gguf *g = open_file(DATA "gguf_py.gguf");
    int32_t i = 5, *ints = &i;
    float x = 5;
    bool b = true;
    kv_gguf_string s = {"default", 7};
    size_t n = 9;
    assert_null(kv_gguf_find(g, "test.absent"));
    assert_int_equal(kv_gguf_get_i32(g, "test.absent", KV_GGUF_OPTIONAL, &i), KVANT_OK);
    assert_int_equal(kv_gguf_get_f32(g, "test.absent", KV_GGUF_OPTIONAL, &x), KVANT_OK);
    assert_int_equal(kv_gguf_get_bool(g, "test.absent", KV_GGUF_OPTIONAL, &b), KVANT_OK);
    assert_int_equal(kv_gguf_get_string(g, "test.absent", KV_GGUF_OPTIONAL, &s), KVANT_OK);
    assert_true(i == 5 && x == 5 && b && s.size == 7);
    assert_int_equal(kv_gguf_get_i32_array(g, "test.absent", KV_GGUF_OPTIONAL, &ints, &n), KVANT_OK);
    assert_null(ints);
    assert_int_equal(n, 0);
    expect_failure(kv_gguf_get_i32(g, "test.absent", KV_GGUF_REQUIRED, &i), "key test.absent: missing");
    expect_failure(kv_gguf_get_i32_array(g, "test.absent", KV_GGUF_REQUIRED, &ints, &n),
                   "key test.absent: missing");
    kv_gguf_close(g);
}

static void check_string(kv_gguf_string s, const char *expected) {
    assert_int_equal(s.size, strlen(expected));
    assert_memory_equal(s.at, expected, s.size);
}

static void test_strings(void **state) {
    (void)state;
    static const char *const expected[] = {"a", "", "ccc", "\xc4\xa0the"};
    kv_gguf *g = open_file(DATA "gguf_py.gguf");
    kv_gguf_string s, *strings;
    size_t n;
    assert_int_equal(kv_gguf_get_string(g, "test.string", KV_GGUF_REQUIRED, &s), KVANT_OK);
    check_string(s, "Gr\xc3\xbc\xc3\x9f"
                    "e, \xe4\xb8\x96\xe7\x95\x8c");
    expect_failure(kv_gguf_get_string(g, "test.u8", KV_GGUF_REQUIRED, &s), "u8, not a string");
    assert_int_equal(kv_gguf_get_string_array(g, "test.strings", KV_GGUF_REQUIRED, &strings, &n), KVANT_OK);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) check_string(strings[i], expected[i]);
    kv_free(strings);
    expect_failure(kv_gguf_get_string_array(g, "test.ints", KV_GGUF_OPTIONAL, &strings, &n),
                   "array of i32, not an array of strings");
    expect_failure(kv_gguf_get_string_array(g, "test.string", KV_GGUF_OPTIONAL, &strings, &n),
                   "string, not an array");
    kv_gguf_close(g);
}

static void expect_ints(const kv_gguf *g, const char *key, size_t n_expected, const int32_t *expected) {
    int32_t *ints;
    size_t n;
    if (kv_gguf_get_i32_array(g, key, KV_GGUF_REQUIRED, &ints, &n)) fail_msg("%s", kv_last_error());
    assert_int_equal(n, n_expected);
    assert_memory_equal(ints, expected, n * sizeof *ints);
    kv_free(ints);
}

static void test_arrays(void **state) {
    (void)state;
    kv_gguf *g = open_file(DATA "gguf_py.gguf");
    float *floats;
    int32_t *ints;
    size_t n;
    expect_ints(g, "test.ints", 3, (const int32_t[]){1, -2, 3});
    expect_ints(g, "test.bools", 3, (const int32_t[]){1, 0, 1});
    expect_ints(g, "test.bytes", 3, (const int32_t[]){1, 2, 255});
    expect_failure(kv_gguf_get_i32_array(g, "test.wide", KV_GGUF_REQUIRED, &ints, &n),
                   "1099511627776, not from");
    expect_failure(kv_gguf_get_i32_array(g, "test.floats", KV_GGUF_REQUIRED, &ints, &n),
                   "not an array of integers");
    expect_failure(kv_gguf_get_f32_array(g, "test.ints", KV_GGUF_REQUIRED, &floats, &n),
                   "not an array of floats");
    assert_int_equal(kv_gguf_get_f32_array(g, "test.floats", KV_GGUF_REQUIRED, &floats, &n), KVANT_OK);
    assert_int_equal(n, 3);
    assert_true(floats[0] == 0.5f && floats[1] == -1.0f && floats[2] == 1e10f);
    kv_free(floats);
    kv_gguf_close(g);
}

/* ---- files ---- */

static void test_bad_paths(void **state) {
    (void)state;
    kv_gguf *g;
    assert_int_equal(kv_gguf_open(&g, DATA "absent.gguf"), KVANT_NOT_FOUND);
    expect_failure(kv_gguf_open(&g, DATA "absent.gguf"), "absent.gguf: cannot open");
    expect_failure(kv_gguf_open(&g, DATA), "not a regular file");
    expect_failure(kv_gguf_open(&g, DATA "../CMakeLists.txt"), "not a GGUF file: it starts with bytes");
    expect_failure(kv_gguf_open(&g, "/dev/null"), "not a regular file");
}

/* The path of a model in $KVANT_MODELS or .cache/models; skips the test, with a line, where there is none. */
static const char *model_or_skip(const char *name) {
    static char path[4096];
    const char *folder = getenv("KVANT_MODELS");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : KVANT_SOURCE_DIR "/.cache/models", name);
    if (access(path, R_OK) != 0) {
        print_message("skipped: no %s\n", path);
        skip();
    }
    return path;
}

static void test_smollm2(void **state) {
    (void)state;
    kv_gguf *g = open_file(model_or_skip("smollm2-135m-q4_1.gguf"));
    kv_gguf_string *tokens;
    size_t n;
    int64_t allocations = kv_alloc_count();
    assert_int_equal(kv_gguf_n_tensors(g), 272);
    check_i32(g, "llama.block_count", 30);
    check_i32(g, "llama.embedding_length", 576);
    assert_int_equal(kv_gguf_get_string_array(g, "tokenizer.ggml.tokens", KV_GGUF_REQUIRED, &tokens, &n),
                     KVANT_OK);
    assert_int_equal(n, 49152);
    check_string(tokens[1], "<|im_start|>");
    assert_int_equal(kv_alloc_count() - allocations, 1); /* one block for all strings */
    kv_free(tokens);
    const kv_gguf_tensor *t = kv_gguf_find_tensor(g, "blk.29.ffn_down.weight");
    assert_non_null(t);
    assert_int_equal(t->dims[0], 1536);
    assert_int_equal(t->dims[1], 576);
    kv_gguf_close(g);
}

/* The largest vocabulary at hand: more than a quarter of a million strings and their merges. */
static void test_large_vocabulary(void **state) {
    (void)state;
    const char *path = KVANT_SOURCE_DIR "/../shared/oracles/tokenizers/gemma-4.gguf";
    if (access(path, R_OK) != 0) {
        print_message("skipped: no ../shared/oracles/tokenizers/gemma-4.gguf\n");
        skip();
    }
    int64_t allocations = kv_alloc_count();
    kv_gguf *g = open_file(path);
    assert_true(kv_alloc_count() - allocations < 20); /* nothing for each string */
    const kv_gguf_value *v = kv_gguf_find(g, "tokenizer.ggml.tokens");
    assert_non_null(v);
    assert_int_equal(v->count, 262144);
    kv_gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_py_tensors),  cmocka_unit_test(test_set),
        cmocka_unit_test(test_numbers),          cmocka_unit_test(test_absent),
        cmocka_unit_test(test_strings),          cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_bad_paths),        cmocka_unit_test(test_smollm2),
        cmocka_unit_test(test_large_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
