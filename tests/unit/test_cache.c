/* The cache's sequences: random operations against a dumb model (cache_model.h), and what field reports say
 * goes wrong: free cells in holes of one, a shift that takes memory, frames that add up.
 *
 * ctest: single */
#include "cache_model.h"

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void append(cache_model *m, int32_t seq, int32_t n) {
    kv_cache_part part = {seq, n};
    assert_int_equal(kv_cache_append(m->cache, &part, 1), KVANT_OK);
    model_append(m, &part, 1);
    model_commit(m, &part, 1);
}

static void drop(cache_model *m, int32_t seq, int64_t p0, int64_t p1) {
    assert_int_equal(kv_cache_drop(m->cache, seq, p0, p1), KVANT_OK);
    model_remove(&m->seqs[seq], p0, p1, p0 - p1);
}

static model_op random_op(kv_random *r) {
    uint64_t bits = kv_random_u64(r);
    model_op op;
    memcpy(&op, &bits, sizeof op);
    op.fails = op.fails % 8 ? 0 : op.fails / 8; /* every eighth time, memory runs out */
    return op;
}

static void test_random_operations(void **state) {
    (void)state;
    static const int32_t sizes[] = {1, 5, 63, 64, 96, 100, 250, 65, 130, 140, 180, 200, 230, 256};
    static const model_window windows[] = {{0, 0, 0}, {3, 2, 1}, {1, 0, 0}, {4, 3, 2}};
    int64_t n_missing = 0, n_rewritten = 0, n_copied = 0;
    for (uint64_t seed = 0; seed < 28; seed++) {
        kv_random random;
        cache_model m;
        kv_random_init(&random, seed);
        assert_int_equal(
            model_open_windowed(&m, sizes[seed % 14], windows[seed % 14 < 7 ? 0 : seed % 4], true), KVANT_OK);
        for (int i = 0; i < 2000; i++) {
            model_op op = random_op(&random);
            model_step(&m, &op);
        }
        assert_in_range(m.n_done, 200, 2000); /* the operations are not mostly nonsense */
        assert_in_range(m.n_refused, 200, 2000);
        n_missing += m.n_missing;
        n_rewritten += m.n_rewritten;
        n_copied += m.n_copied;
        model_close(&m);
    }
    print_message("%lld refused for a window, %lld cells rotated, %lld copied\n", (long long)n_missing,
                  (long long)n_rewritten, (long long)n_copied);
    assert_true(n_missing > 100 && n_rewritten > 1000 && n_copied > 100);
}

/* Four sequences token by token, two of them cleared: the free cells are holes of one. */
static void test_holes_of_one(void **state) {
    (void)state;
    cache_model m;
    assert_int_equal(model_open(&m, 40), KVANT_OK);
    for (int i = 0; i < 40; i++) append(&m, i % 4, 1);
    for (int32_t seq = 1; seq < 4; seq += 2) {
        assert_int_equal(kv_cache_remove(m.cache, seq, 0, -1), KVANT_OK);
        m.seqs[seq].n = 0;
    }
    model_check(&m);
    assert_int_equal(kv_cache_free_cells(m.cache), 20);
    append(&m, 0, 10); /* of 20 */
    kv_cache_part too_much = {2, 11}, rest = {2, 10};
    assert_int_equal(kv_cache_append(m.cache, &too_much, 1), KVANT_CONTEXT_FULL);
    assert_non_null(strstr(kv_last_error(), "11 cells asked for, 10 of 40 free"));
    model_check(&m); /* nothing has changed */
    assert_int_equal(kv_cache_append(m.cache, &rest, 1), KVANT_OK);
    model_append(&m, &rest, 1);
    model_check(&m);
    assert_int_equal(kv_cache_free_cells(m.cache), 0);
    model_close(&m);
}

/* Under the usual policy (keep 4, drop half) a sequence has two frames, however often it shifts. */
static void test_frames_do_not_add_up(void **state) {
    (void)state;
    cache_model m;
    assert_int_equal(model_open(&m, 100), KVANT_OK);
    for (int round = 0; round < 200; round++) {
        while (kv_cache_free_cells(m.cache)) append(&m, 0, 1);
        drop(&m, 0, 4, 52);
        append(&m, 0, 2);
        assert_int_equal(kv_cache_frames(m.cache, 0), 2);
        assert_in_range(kv_cache_batch(m.cache, 0)->seqs[0].n_runs, 2, 4);
        assert_int_equal(kv_cache_angles(m.cache, 0)->n_turns, 1);
        model_check(&m);
    }
    model_close(&m);
}

static void test_there_and_back(void **state) {
    (void)state;
    cache_model m;
    kv_random random;
    kv_random_init(&random, 7);
    assert_int_equal(model_open(&m, 100), KVANT_OK);
    append(&m, 0, 12);
    append(&m, 0, 12);
    int64_t sum = 0;
    for (int i = 0; i <= 100; i++) {
        int64_t delta = i < 100 ? 1 + (int64_t)(kv_random_u64(&random) % 64) : -sum;
        if (i < 100 && sum > 200) delta = -delta;
        assert_int_equal(kv_cache_shift(m.cache, 0, 8 + sum, -1, delta), KVANT_OK);
        assert_true(model_shift(&m.seqs[0], 8 + sum, INT64_MAX, delta));
        sum += delta;
        model_check(&m);
    }
    assert_int_equal(kv_cache_frames(m.cache, 0), 1);
    append(&m, 0, 1);
    assert_int_equal(kv_cache_batch(m.cache, 0)->seqs[0].n_runs, 1); /* as if nothing had happened */
    model_close(&m);
}

/* Moving and cutting need no memory once a sequence has been appended to. */
static void test_no_memory_needed(void **state) {
    (void)state;
    cache_model m;
    assert_int_equal(model_open(&m, 100), KVANT_OK);
    for (int i = 0; i < 5; i++) append(&m, 0, 12);
    int64_t before = kv_alloc_count();
    drop(&m, 0, 4, 30);
    append(&m, 0, 1);
    assert_int_equal(kv_alloc_count(), before);
    for (int i = 0; i < 10; i++) append(&m, i % 2, 1); /* torn: a span per token */
    kv_alloc_fail_after(0);
    for (int64_t p = kv_cache_end(m.cache, 0); p-- > 0;) {
        assert_int_equal(kv_cache_remove(m.cache, 0, p, -1), KVANT_OK);
        model_remove(&m.seqs[0], p, INT64_MAX, 0);
    }
    kv_alloc_fail_after(-1);
    model_check(&m);
    model_close(&m);
}

/* The same cells at other positions, in a copy that then goes its own way. */
static void test_copies_move_apart(void **state) {
    (void)state;
    cache_model m;
    assert_int_equal(model_open(&m, 64), KVANT_OK);
    append(&m, 0, 10);
    assert_int_equal(kv_cache_copy(m.cache, 1, 0, 0, -1), KVANT_OK);
    m.seqs[1] = m.seqs[0];
    assert_int_equal(kv_cache_free_cells(m.cache), 54); /* nothing was copied */
    assert_int_equal(kv_cache_shift(m.cache, 1, 0, -1, 1000), KVANT_OK);
    assert_true(model_shift(&m.seqs[1], 0, INT64_MAX, 1000));
    append(&m, 1, 5);
    append(&m, 0, 5);
    drop(&m, 1, 1002, 1006);
    model_check(&m);
    assert_int_equal(kv_cache_remove(m.cache, 0, 0, -1), KVANT_OK);
    m.seqs[0].n = 0;
    model_check(&m);
    assert_int_equal(kv_cache_free_cells(m.cache), 64 - 11); /* the four dropped ones too: both let go */
    model_close(&m);
}

static void test_far_positions(void **state) {
    (void)state;
    cache_model m;
    assert_int_equal(model_open(&m, 64), KVANT_OK);
    append(&m, 0, 10);
    static const int64_t wrong[] = {INT64_MAX, INT64_MAX / 2, INT64_MIN, -1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(kv_cache_shift(m.cache, 0, 0, -1, wrong[i]), KVANT_INVALID);
    model_check(&m);
    assert_int_equal(kv_cache_shift(m.cache, 0, 5, INT64_MAX, (int64_t)1 << 60), KVANT_OK);
    assert_true(model_shift(&m.seqs[0], 5, INT64_MAX, (int64_t)1 << 60));
    append(&m, 0, 3);
    model_check(&m);
    assert_int_equal(kv_cache_remove(m.cache, 0, -5, 3), KVANT_INVALID);
    assert_int_equal(kv_cache_remove(m.cache, 0, 5, 3), KVANT_INVALID);
    assert_int_equal(kv_cache_remove(m.cache, -1, 0, -1), KVANT_INVALID);
    assert_int_equal(kv_cache_remove(m.cache, MODEL_SEQS + 1, 0, -1), KVANT_INVALID);
    model_check(&m);
    model_close(&m);
}

/* A rotation that does not add up: positions stay, cutting is legal. */
static void test_positions_that_cannot_move(void **state) {
    (void)state;
    cache_model m;
    assert_int_equal(model_open_windowed(&m, 8, (model_window){0}, false), KVANT_OK);
    append(&m, 0, 6);
    assert_int_equal(kv_cache_shift(m.cache, 0, 0, -1, 1), KVANT_UNSUPPORTED);
    assert_int_equal(kv_cache_drop(m.cache, 0, 1, 3), KVANT_UNSUPPORTED);
    assert_int_equal(kv_cache_begin_compact(m.cache, 0), KVANT_UNSUPPORTED);
    assert_int_equal(kv_cache_begin_divide(m.cache, 0, 0, -1, 2), KVANT_UNSUPPORTED);
    assert_false(kv_cache_can_turn(m.cache));
    model_check(&m);
    assert_int_equal(kv_cache_drop(m.cache, 0, 4, -1), KVANT_OK); /* nothing behind it would move */
    model_remove(&m.seqs[0], 4, 6, 0);
    model_check(&m);
    model_close(&m);
}

static void test_creation_without_memory(void **state) {
    (void)state;
    kv_status status = KVANT_NO_MEMORY;
    int64_t n = 0;
    for (; status; n++) {
        cache_model m;
        kv_alloc_fail_after(n);
        status = model_open(&m, 64);
        kv_alloc_fail_after(-1);
        assert_true(status == KVANT_OK || status == KVANT_NO_MEMORY);
        if (!status) model_close(&m);
    }
    assert_in_range(n, 10, 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations),       cmocka_unit_test(test_holes_of_one),
        cmocka_unit_test(test_frames_do_not_add_up),    cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_no_memory_needed),        cmocka_unit_test(test_copies_move_apart),
        cmocka_unit_test(test_far_positions),           cmocka_unit_test(test_positions_that_cannot_move),
        cmocka_unit_test(test_creation_without_memory),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
