/* test_base_memory: the allocator, its counter and its failures on purpose, arena, vector, checked
 * arithmetic; and the messages of base/status. */
#include "base/memory.h"
#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool all_zero(const void *p, size_t n) {
    const unsigned char *bytes = p;
    for (size_t i = 0; i < n; i++)
        if (bytes[i]) return false;
    return true;
}

static void test_checked_arithmetic(void **state) {
    (void)state;
    size_t out = 42;
    assert_true(kv_add_size(&out, SIZE_MAX - 1, 1) && out == SIZE_MAX);
    assert_false(kv_add_size(&out, SIZE_MAX, 1));
    assert_true(kv_mul_size(&out, SIZE_MAX / 3, 3));
    assert_false(kv_mul_size(&out, SIZE_MAX / 3 + 1, 3));
    assert_true(kv_mul_size(&out, 0, SIZE_MAX) && out == 0);
    assert_int_equal(kv_round_up(0, 64), 0);
    assert_int_equal(kv_round_up(1, 64), 64);
    assert_int_equal(kv_round_up(64, 64), 64);
    assert_int_equal(kv_round_up(7, 3), 9);
}

static void test_alloc(void **state) {
    (void)state;
    int64_t before = kv_alloc_count();
    unsigned char *p = kv_alloc(33, 3), *q = kv_alloc_aligned(65, 1), *none = kv_alloc(0, 8);
    assert_true(p && q && none);
    assert_int_equal(kv_alloc_count() - before, 3);
    assert_true(all_zero(p, 99) && all_zero(q, 65));
    assert_int_equal((uintptr_t)q % 64, 0);
    memset(p, 7, 99);
    p = kv_realloc(p, 1000, 1);
    assert_non_null(p);
    for (int i = 0; i < 99; i++) assert_int_equal(p[i], 7);
    kv_free(p);
    kv_free(q);
    kv_free(none);
    kv_free(NULL);
}

static void test_strings(void **state) {
    (void)state;
    char *all = kv_strdup("kv"), *part = kv_strndup("a\0bc", 3);
    assert_string_equal(all, "kv");
    assert_memory_equal(part, "a\0b", 4);
    kv_free(all);
    kv_free(part);
}

static void test_too_much_says_how_much(void **state) {
    (void)state;
    assert_null(kv_alloc(SIZE_MAX / 2, 3));
    assert_non_null(strstr(kv_last_error(), "more than can be addressed"));
    assert_null(kv_alloc((size_t)1 << 62, 1));
    assert_non_null(strstr(kv_last_error(), "4611686018427387904 bytes"));
    assert_null(kv_alloc_aligned(SIZE_MAX - 10, 1));
    assert_null(kv_strndup("", SIZE_MAX));
    kv_arena arena = {0};
    assert_null(kv_arena_alloc(&arena, SIZE_MAX / 2, 4));
    assert_null(kv_arena_alloc(&arena, SIZE_MAX - 3, 1));
    kv_arena_clear(&arena);
}

static void test_fail_on_purpose(void **state) {
    (void)state;
    int *kept = kv_alloc(4, sizeof *kept);
    kept[3] = 9;
    kv_alloc_fail_after(2);
    void *one = kv_alloc(1, 1), *two = kv_alloc_aligned(1, 1);
    assert_true(one && two);
    assert_null(kv_alloc(100, 3));
    assert_non_null(strstr(kv_last_error(), "300 bytes"));
    assert_null(kv_realloc(kept, 8, sizeof *kept)); /* and every one after it; the old block is still there */
    assert_null(kv_pages_map(4096));
    assert_int_equal(kept[3], 9);
    kv_alloc_fail_after(-1);
    void *again = kv_alloc(1, 1);
    assert_non_null(again);
    kv_free(one);
    kv_free(two);
    kv_free(again);
    kv_free(kept);
}

static void test_pages(void **state) {
    (void)state;
    const size_t bytes = (size_t)1 << 36; /* costs nothing until touched */
    unsigned char *p = kv_pages_map(bytes);
    if (!p) {
        print_message("skipped: this system does not promise 64 GiB of untouched memory\n");
        skip();
    }
    p[0] = p[8192] = p[bytes - 1] = 1;
    kv_pages_release(p + 1, 3 * 4096); /* whole pages inside only: the first stays */
    assert_int_equal(p[0], 1);
    assert_int_equal(p[8192], 0);
    assert_int_equal(p[bytes - 1], 1);
    kv_pages_unmap(p, bytes);
    kv_pages_unmap(NULL, 0);
}

static void test_arena(void **state) {
    (void)state;
    kv_arena arena = {0};
    unsigned char *blocks[3000];
    int64_t before = kv_alloc_count();
    for (size_t i = 0; i < 3000; i++) {
        blocks[i] = kv_arena_alloc(&arena, i % 97, 1);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        assert_true(all_zero(blocks[i], i % 97));
        memset(blocks[i], (int)(i % 251) + 1, i % 97);
    }
    assert_true(kv_alloc_count() - before < 10);
    for (size_t i = 0; i < 3000; i++)
        for (size_t j = 0; j < i % 97; j++) assert_int_equal(blocks[i][j], i % 251 + 1);
    char *big = kv_arena_alloc(&arena, 1, 1 << 20), *text = kv_arena_strndup(&arena, "layers", 5);
    assert_true(big && all_zero(big, 1 << 20));
    assert_string_equal(text, "layer");
    kv_arena_clear(&arena);
    assert_null(arena.blocks);
    kv_arena_clear(&arena);
}

static void test_arena_out_of_memory(void **state) {
    (void)state;
    kv_arena arena = {0};
    kv_alloc_fail_after(0);
    assert_null(kv_arena_alloc(&arena, 1, 1));
    assert_null(kv_arena_strndup(&arena, "x", 1));
    kv_alloc_fail_after(-1);
    assert_non_null(kv_arena_alloc(&arena, 1, 1));
    kv_arena_clear(&arena);
}

static void test_vec(void **state) {
    (void)state;
    KV_VEC(int) v = {0};
    int64_t before = kv_alloc_count();
    for (int i = 0; i < 10000; i++) assert_true(kv_vec_push(&v, i));
    assert_true(kv_alloc_count() - before < 16); /* doubling */
    for (int i = 0; i < 10000; i++) assert_int_equal(v.at[i], i);
    kv_alloc_fail_after(0);
    assert_false(kv_vec_reserve(&v, v.capacity + 1));
    assert_true(v.count == 10000 && v.at[9999] == 9999);
    assert_true(kv_vec_reserve(&v, v.capacity));
    kv_alloc_fail_after(-1);
    assert_false(kv_vec_reserve(&v, SIZE_MAX));
    kv_vec_clear(&v);
    assert_true(!v.at && !v.count && !v.capacity);
}

static void test_status_texts(void **state) {
    (void)state;
    assert_string_equal(kv_status_text(KVANT_OK), "ok");
    assert_string_equal(kv_status_text(KVANT_CANCELLED), "cancelled");
    assert_string_equal(kv_status_text((kv_status)99), "unknown status");
    assert_string_equal(kv_status_text((kv_status)-1), "unknown status");
}

static void test_status_message(void **state) {
    (void)state;
    assert_int_equal(kv_fail(KVANT_FORMAT, "tensor %s: %d columns", "a", 96), KVANT_FORMAT);
    assert_string_equal(kv_last_error(), "tensor a: 96 columns");
    assert_int_equal(kv_fail_in(KVANT_IO, "file %s", "b"), KVANT_IO);
    assert_string_equal(kv_last_error(), "file b: tensor a: 96 columns");
}

static void test_status_message_is_cut(void **state) {
    (void)state;
    char longer[2000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    (void)kv_fail(KVANT_FAILED, "%s", longer);
    size_t n = strlen(kv_last_error());
    assert_true(n > 200 && n < sizeof longer);
    (void)kv_fail_in(KVANT_FAILED, "in %s", "this");
    assert_memory_equal(kv_last_error(), "in this: xxx", 12);
    (void)kv_fail_in(KVANT_FAILED, "%s", longer);
    assert_int_equal(strlen(kv_last_error()), n);
}

static kv_status forwards(kv_status status) {
    KV_TRY(status);
    return KVANT_INVALID;
}

static void test_try(void **state) {
    (void)state;
    assert_int_equal(forwards(KVANT_IO), KVANT_IO);
    assert_int_equal(forwards(KVANT_OK), KVANT_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checked_arithmetic),
        cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_too_much_says_how_much),
        cmocka_unit_test(test_fail_on_purpose),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_out_of_memory),
        cmocka_unit_test(test_vec),
        cmocka_unit_test(test_status_texts),
        cmocka_unit_test(test_status_message),
        cmocka_unit_test(test_status_message_is_cut),
        cmocka_unit_test(test_try),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
