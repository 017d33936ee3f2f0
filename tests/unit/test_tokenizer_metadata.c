/* Hostile and incomplete vocabularies (field report F32): every key dropped, retyped, resized; ids out of
 * range, NaN scores, bad byte tokens, malformed merges, unknown models. Every refusal names what is wrong,
 * and a good vocabulary works afterwards. Then memory that runs out at every single allocation.
 *
 * ctest: single */
#include "text_fixture.h"

#include <math.h>

static vocab_spec spec;

/* Creates from the spec; on success also encodes a little. */
static kv_status try_spec(void) {
    vocabulary v = {.bytes = vocab_write(&spec)};
    kv_status status = kv_gguf_open_memory(&v.gguf, v.bytes.at, v.bytes.count);
    if (!status) status = kv_tokenizer_create(&v.tokenizer, v.gguf);
    if (status) assert_null(v.tokenizer);
    if (!status) {
        kv_tokens tokens = {0};
        static const char text[] = " hello\n w\xc3\xb6rld 123 <|im_end|><0x0A>\xff";
        assert_ok(kv_tokenizer_encode(v.tokenizer, text, sizeof text,
                                      (kv_encode_options){.add_special = true, .parse_special = true},
                                      &tokens));
        for (size_t i = 0; i < tokens.count; i++)
            assert_true(tokens.at[i] >= 0 && tokens.at[i] < kv_tokenizer_size(v.tokenizer));
        kv_vec_clear(&tokens);
    }
    close_vocabulary(&v);
    return status;
}

static void check_good(size_t i) {
    vocab_builders[i](&spec);
    assert_ok(try_spec());
}

/* The spec is refused, with a message that contains all of `words`. */
static void check_refused(const char *words) {
    assert_int_not_equal(try_spec(), KVANT_OK);
    char copy[100];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *save, *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        if (!strstr(kv_last_error(), word)) fail_msg("'%s' does not say %s", kv_last_error(), word);
}

static bool is_required(const vocab_spec *v, const char *key) {
    const char *name = key + strlen("tokenizer.ggml.");
    bool spm = strcmp(v->fields[0].string, "llama") == 0;
    return strcmp(name, "model") == 0 || strcmp(name, "tokens") == 0 ||
           strcmp(name, spm ? "scores" : "merges") == 0;
}

static void test_dropped(void **state) {
    (void)state;
    for (size_t i = 0; i < N_VOCAB_BUILDERS; i++) {
        check_good(i);
        for (int32_t f = 0, n = spec.n_fields; f < n; f++) {
            vocab_builders[i](&spec);
            const char *key = spec.fields[f].key;
            bool required = is_required(&spec, key);
            memmove(&spec.fields[f], &spec.fields[f + 1], (size_t)(n - f - 1) * sizeof *spec.fields);
            spec.n_fields--;
            if (required)
                check_refused(key);
            else
                assert_ok(try_spec());
        }
        check_good(i);
    }
}

static void test_retyped(void **state) {
    (void)state;
    static const kv_gguf_type types[] = {KV_GGUF_U32, KV_GGUF_STRING, KV_GGUF_ARRAY, KV_GGUF_BOOL};
    for (size_t i = 0; i < N_VOCAB_BUILDERS; i++)
        for (int32_t f = 0; f < (vocab_builders[i](&spec), spec.n_fields); f++)
            for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
                vocab_builders[i](&spec);
                vocab_field *field = &spec.fields[f];
                kv_gguf_type old = field->type,
                             element = old == KV_GGUF_ARRAY && field->element == KV_GGUF_STRING
                                           ? KV_GGUF_F32
                                           : KV_GGUF_STRING;
                *field = (vocab_field){
                    .key = field->key, .type = types[t], .element = element, .count = 3, .string = "x"};
                bool is_number = old == KV_GGUF_U32 || old == KV_GGUF_BOOL;
                bool to_number = types[t] == KV_GGUF_U32 || types[t] == KV_GGUF_BOOL;
                bool unread = strstr(field->key, "merges") && strcmp(spec.fields[0].string, "llama") == 0;
                if ((is_number && to_number) || unread || (old == KV_GGUF_STRING && types[t] == old))
                    try_spec(); /* may do, or not */
                else
                    check_refused(field->key);
            }
    check_good(0);
}

static void test_resized(void **state) {
    (void)state;
    for (size_t i = 0; i < N_VOCAB_BUILDERS; i++)
        for (int32_t f = 0; f < (vocab_builders[i](&spec), spec.n_fields); f++)
            for (int change = -1; change <= 1; change++) {
                vocab_builders[i](&spec);
                vocab_field *field = &spec.fields[f];
                if (field->type != KV_GGUF_ARRAY || field->count == 0) break;
                bool merges = strstr(field->key, "merges") != NULL;
                field->count = change ? field->count + (uint64_t)(int64_t)change : 0;
                if (!merges)
                    check_refused("tokenizer.ggml");
                else if (change == 1)
                    check_refused(field->key); /* "filler" is no merge */
                else
                    assert_ok(try_spec());
            }
    check_good(1);
}

static void test_ids(void **state) {
    (void)state;
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const uint32_t values[] = {VOCAB_MAX_TOKENS, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < N_VOCAB_BUILDERS; i++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            for (size_t n = 0; n < sizeof values / sizeof *values; n++) {
                vocab_builders[i](&spec);
                vocab_set_number(&spec, keys[k], KV_GGUF_U32, values[n]);
                check_refused(keys[k]);
            }
            vocab_builders[i](&spec);
            vocab_set_number(&spec, keys[k], KV_GGUF_U32, (uint32_t)spec.n_tokens);
            check_refused(keys[k]);
            vocab_builders[i](&spec);
            vocab_set_number(&spec, keys[k], KV_GGUF_U32, (uint32_t)spec.n_tokens - 1);
            assert_ok(try_spec());
        }
}

static void test_values(void **state) {
    (void)state;
    static const int32_t bad_types[] = {-1, 7, INT32_MAX, INT32_MIN};
    static const char *const bad_bytes[] = {"<0x-1>", "<0xG1>", "<0x1>", "<0x001>", "0x0A", "", "<0x0a>"};
    for (size_t i = 0; i < sizeof bad_types / sizeof *bad_types; i++) {
        check_good(1);
        spec.types[5] = bad_types[i];
        check_refused("tokenizer.ggml.token_type token 5");
    }
    check_good(1);
    spec.scores[7] = NAN;
    check_refused("tokenizer.ggml.scores 7");
    for (size_t i = 0; i < sizeof bad_bytes / sizeof *bad_bytes; i++) {
        check_good(1);
        spec.tokens[13] = (kv_gguf_string){bad_bytes[i], strlen(bad_bytes[i])};
        check_refused("tokenizer.ggml.tokens byte 13");
    }
    check_good(1); /* a missing byte is the unknown token, which must then be there */
    spec.types[13] = 1;
    assert_ok(try_spec());
    spec.fields[0].string = "gemma4"; /* has no unknown token by default */
    for (int32_t f = 0; f < spec.n_fields; f++)
        if (strstr(spec.fields[f].key, "unknown")) spec.fields[f].key = "tokenizer.ggml.other";
    check_refused("<0x0A> unknown");
}

static void test_odd_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < N_VOCAB_BUILDERS;
         i++) { /* empty, with NUL, invalid UTF-8, twice the same: all legal */
        vocab_builders[i](&spec);
        for (int type = 1; type <= 5; type++) vocab_add(&spec, "", type, 0);
        for (int type = 1; type <= 5; type++)
            spec.tokens[vocab_add(&spec, "", type, 0)] = (kv_gguf_string){"a\0b", 3};
        for (int type = 1; type <= 5; type++) vocab_add(&spec, "\xff\xc4", type, 0);
        vocab_add(&spec, "hello", 1, 5);
        vocab_finish(&spec);
        assert_ok(try_spec());
        vocabulary v = build_vocabulary(&spec);
        assert_true(kv_tokenizer_find(v.tokenizer, "hello", 5) < spec.n_tokens - 1);
        size_t n;
        kv_tokens tokens = encode(v.tokenizer, "a\0b", 3, (kv_encode_options){0});
        char *back = decode(v.tokenizer, &tokens, &n);
        assert_int_equal(n, 3);
        assert_memory_equal(back, "a\0b", 3);
        kv_free(back);
        kv_vec_clear(&tokens);
        close_vocabulary(&v);
    }
}

static void test_merges(void **state) {
    (void)state;
    static const char *const bad[] = {"", " ", "a", "ab", " a", "a ", "h zz", "zz h", "h h", "a b c", "  "};
    for (size_t i = 0; i < N_VOCAB_BUILDERS; i += 2)
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            vocab_builders[i](&spec);
            spec.merges[3] = (kv_gguf_string){bad[k], strlen(bad[k])};
            check_refused("tokenizer.ggml.merges merge 3");
        }
    vocab_bpe(&spec); /* a merge that would spell a control token does not */
    vocab_add(&spec, "<z", 1, 0);
    vocab_add(&spec, "<z>", 3, 0);
    spec.merges[spec.n_merges++] = (kv_gguf_string){"< z", 3};
    spec.merges[spec.n_merges++] = (kv_gguf_string){"<z >", 4};
    vocab_finish(&spec);
    vocabulary v = build_vocabulary(&spec);
    kv_tokens tokens = encode(v.tokenizer, "<z>", 3, (kv_encode_options){0});
    for (size_t i = 0; i < tokens.count; i++)
        assert_int_equal(kv_tokenizer_type(v.tokenizer, tokens.at[i]), KV_TOKEN_NORMAL);
    kv_vec_clear(&tokens);
    close_vocabulary(&v);
}

static void test_unknown_names(void **state) {
    (void)state;
    check_good(0);
    vocab_set_string(&spec, "tokenizer.ggml.model", "rwkv");
    check_refused("tokenizer.ggml.model rwkv gpt2 llama gemma4");
    check_good(0);
    vocab_set_string(&spec, "tokenizer.ggml.pre", "klingon");
    check_refused("tokenizer.ggml.pre klingon smollm qwen2 llama-bpe tekken");
    vocab_set_string(&spec, "tokenizer.ggml.pre", "");
    check_refused("tokenizer.ggml.pre smollm");
}

static void test_bad_tokens(void **state) {
    (void)state;
    const char *bytes;
    size_t n;
    vocab_bpe(&spec);
    vocabulary v = build_vocabulary(&spec);
    static const int32_t bad[] = {-1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(kv_tokenizer_piece(v.tokenizer, bad[i], false, &bytes, &n), KVANT_INVALID);
        assert_int_equal(kv_tokenizer_type(v.tokenizer, bad[i]), KV_TOKEN_UNUSED);
        assert_false(kv_tokenizer_is_end(v.tokenizer, bad[i]));
    }
    assert_int_equal(kv_tokenizer_piece(v.tokenizer, spec.n_tokens, false, &bytes, &n), KVANT_INVALID);
    kv_tokens tokens = {0};
    kv_encode_options options = {0};
    assert_int_equal(kv_tokenizer_encode(v.tokenizer, "", (size_t)KV_TEXT_BYTES_MAX + 1, options, &tokens),
                     KVANT_INVALID);
    close_vocabulary(&v);
    kv_tokenizer_destroy(NULL);
}

/* ---- memory ---- */

static void check_no_memory(const kv_gguf *g) {
    static const char text[] = "hello world, hello 12345 \xff\xc3\xa9 aaaaaaaa<|im_end|>";
    kv_tokenizer *t = NULL;
    int64_t n = 0;
    for (;; n++) {
        kv_alloc_fail_after(n);
        kv_status status = kv_tokenizer_create(&t, g);
        kv_alloc_fail_after(-1);
        if (status == KVANT_OK) break;
        assert_int_equal(status, KVANT_NO_MEMORY);
        assert_null(t);
    }
    assert_true(n > 5);
    kv_tokens expected = encode(t, text, sizeof text,
                                (kv_encode_options){.add_special = true, .parse_special = true}),
              tokens = {0};
    for (n = 0;; n++) {
        assert_true(kv_vec_push(&tokens, 7));
        kv_alloc_fail_after(n);
        kv_status status = kv_tokenizer_encode(
            t, text, sizeof text, (kv_encode_options){.add_special = true, .parse_special = true}, &tokens);
        kv_alloc_fail_after(-1);
        if (status == KVANT_OK) break;
        assert_int_equal(status, KVANT_NO_MEMORY);
        assert_int_equal(tokens.count, 1); /* as before */
        kv_vec_clear(&tokens);
    }
    assert_true(n > 3);
    assert_int_equal(tokens.count, expected.count + 1);
    assert_memory_equal(tokens.at + 1, expected.at, expected.count * sizeof *expected.at);
    kv_vec_clear(&tokens);
    kv_vec_clear(&expected);
    kv_tokenizer_destroy(t);
}

static void test_no_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < N_VOCAB_BUILDERS; i++) {
        vocab_builders[i](&spec);
        vocabulary v = build_vocabulary(&spec);
        check_no_memory(v.gguf);
        close_vocabulary(&v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropped),    cmocka_unit_test(test_retyped),
        cmocka_unit_test(test_resized),    cmocka_unit_test(test_ids),
        cmocka_unit_test(test_values),     cmocka_unit_test(test_odd_texts),
        cmocka_unit_test(test_merges),     cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_bad_tokens), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("tokenizer metadata", tests, NULL, NULL);
}
