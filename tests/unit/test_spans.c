/* Spans of a sequence and the search for free cells, one function at a time. Random sequences of operations:
 * test_cache.c.
 *
 * ctest: single */
#include "cache/cells.h"
#include "cache/spans.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void append(kv_spans *s, int32_t first_cell, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(kv_spans_reserve(s, 1), KVANT_OK);
        kv_spans_append(s, first_cell + i);
    }
}

static void check_span(const kv_spans *s, size_t i, kv_span expected) {
    assert_in_range(i, 0, s->list.count - 1);
    assert_memory_equal(&s->list.at[i], &expected, sizeof expected);
}

static void test_append(void **state) {
    (void)state;
    kv_spans s = {.n_cells = 0};
    assert_int_equal(kv_spans_end(&s), 0);
    append(&s, 10, 3);
    append(&s, 13, 2); /* runs on */
    append(&s, 40, 1);
    assert_int_equal(s.list.count, 2);
    check_span(&s, 0, (kv_span){10, 5, 0, 0});
    check_span(&s, 1, (kv_span){40, 1, 5, 0});
    assert_int_equal(kv_spans_end(&s), 6);
    s.list.at[1].turn = -3; /* new tokens are written in the frame of the last span */
    append(&s, 80, 1);
    check_span(&s, 2, (kv_span){80, 1, 6, -3});
    assert_int_equal(kv_spans_end(&s), 4);
    assert_int_equal(s.n_cells, 7);
    kv_vec_clear(&s.list);
}

static void test_split_erase_join(void **state) {
    (void)state;
    kv_spans s = {.n_cells = 0};
    append(&s, 10, 8);
    assert_int_equal(kv_spans_reserve(&s, 4), KVANT_OK);
    assert_int_equal(kv_spans_split(&s, 0), 0);
    assert_int_equal(kv_spans_split(&s, 8), 1);
    assert_int_equal(kv_spans_split(&s, 100), 1);
    assert_int_equal(s.list.count, 1); /* nothing to split there */
    assert_int_equal(kv_spans_split(&s, 3), 1);
    assert_int_equal(kv_spans_split(&s, 5), 2);
    check_span(&s, 1, (kv_span){13, 2, 3, 0});
    kv_spans_join(&s);
    assert_int_equal(s.list.count, 1);
    check_span(&s, 0, (kv_span){10, 8, 0, 0});
    kv_spans_split(&s, 3);
    kv_spans_split(&s, 5);
    kv_spans_erase(&s, 1, 2);
    assert_int_equal(s.n_cells, 6);
    assert_int_equal(kv_spans_split(&s, 4), 1); /* in the gap */
    kv_spans_join(&s);
    assert_int_equal(s.list.count, 2); /* positions do not run on, nor cells */
    s.list.at[1].turn = -2;
    kv_spans_join(&s);
    assert_int_equal(s.list.count, 2); /* now positions do; the frames differ */
    kv_vec_clear(&s.list);
}

static void test_clip_and_sort(void **state) {
    (void)state;
    kv_spans s = {.n_cells = 0};
    append(&s, 0, 10);
    assert_int_equal(kv_spans_reserve(&s, 4), KVANT_OK);
    kv_spans_split(&s, 4);
    kv_spans_split(&s, 7);
    kv_spans_erase(&s, 1, 2); /* 0-3, 7-9 */
    static const int64_t ranges[][5] = {{0, 10, 1, 0, 10}, {2, 6, 1, 2, 4},     {5, 100, 1, 7, 10},
                                        {4, 7, 0, 4, 7},   {10, 20, 0, 10, 20}, {3, 8, 1, 3, 8}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        int64_t p0 = ranges[i][0], p1 = ranges[i][1];
        assert_int_equal(kv_spans_clip(&s, &p0, &p1), ranges[i][2]);
        assert_int_equal(p0, ranges[i][3]);
        assert_int_equal(p1, ranges[i][4]);
    }
    s.list.at[0].turn = 100; /* jumps over the other */
    kv_spans_sort(&s);
    check_span(&s, 0, (kv_span){7, 3, 7, 0});
    check_span(&s, 1, (kv_span){0, 4, 0, 100});
    kv_vec_clear(&s.list);
}

/* ---- cells ---- */

static void test_cells_run_on(void **state) {
    (void)state;
    kv_cells c;
    assert_int_equal(kv_cells_init(&c, 20, 8), KVANT_OK); /* pages of 8, 8 and 4 */
    assert_int_equal(kv_cells_take(&c, -1), 0);
    assert_int_equal(kv_cells_take(&c, 1), 1);
    assert_int_equal(kv_cells_take(&c, -1), 8); /* another begins in an empty page */
    assert_int_equal(kv_cells_take(&c, 9), 9);
    for (int32_t i = 2; i < 8; i++) assert_int_equal(kv_cells_take(&c, i), i);
    assert_int_equal(kv_cells_take(&c, 8), 16);  /* the wish is another's: an empty page */
    assert_int_equal(kv_cells_take(&c, 20), 10); /* no such cell: any */
    assert_int_equal(c.n_free, 20 - 12);
    kv_cells_clear(&c);
}

static void test_cells_are_counted(void **state) {
    (void)state;
    kv_cells c;
    assert_int_equal(kv_cells_init(&c, 8, 4), KVANT_OK);
    for (int32_t i = 0; i < 8; i++) kv_cells_take(&c, i);
    assert_int_equal(c.n_free, 0);
    kv_cells_share(&c, 2, 4);
    kv_cells_drop(&c, 0, 8);
    assert_int_equal(c.n_free, 4);
    assert_int_equal(c.page_used[0], 2);
    assert_int_equal(kv_cells_take(&c, -1), 0); /* no page is empty: the first free cell */
    assert_int_equal(kv_cells_take(&c, 4), 1);  /* in use */
    assert_int_equal(kv_cells_take(&c, 6), 6);
    kv_cells_drop(&c, 2, 4);
    assert_int_equal(c.n_free, 5);
    kv_cells_clear(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_split_erase_join),
        cmocka_unit_test(test_clip_and_sort),
        cmocka_unit_test(test_cells_run_on),
        cmocka_unit_test(test_cells_are_counted),
    };
    return cmocka_run_group_tests_name("spans", tests, NULL, NULL);
}
