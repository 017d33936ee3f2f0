/* Laws of layouts, for every dtype in every layout of the registry and in some that exist here only: the
 * address function is a permutation of the bytes, pack follows it byte by byte, unpack is its inverse, parts
 * of a matrix go the same way as the whole, padding is left alone.
 *
 * ctest: single */
#include "base/memory.h"
#include "base/random.h"
#include "layout/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const kv_layout made_up[] = {
    {.name = "tile 8 chunk 8", .tile = 8, .group = 8, .chunk = 8},
    {.name = "tile 32 group 8 chunk 2", .tile = 32, .group = 8, .chunk = 2},
    {.name = "tile 3 chunk 1", .tile = 3, .group = 1, .chunk = 1},
    {.name = "tile 32 chunk 64", .tile = 32, .group = 32, .chunk = 64},
};
enum { N_MADE_UP = sizeof made_up / sizeof *made_up };

static const int64_t row_counts[] = {1, 2, 7, 16, 17, 33};
static const int64_t block_counts[] = {1, 2, 5};

typedef struct matrix {
    const kv_layout *l;
    const kv_dtype *d;
    int64_t rows, cols;
    size_t row_bytes, plain_bytes, bytes;
    uint8_t *plain, *packed, *back;
} matrix;

typedef void law(const matrix *m);

static void open_matrix(matrix *m, const kv_layout *l, const kv_dtype *d, int64_t rows, int64_t blocks) {
    *m = (matrix){.l = l, .d = d, .rows = rows, .cols = blocks * d->block_elems};
    m->row_bytes = kv_dtype_bytes(d, m->cols);
    m->plain_bytes = m->row_bytes * (size_t)rows;
    m->bytes = kv_layout_bytes(l, d, rows, m->cols);
    m->plain = kv_alloc(m->plain_bytes, 1);
    m->packed = kv_alloc(m->bytes, 1);
    m->back = kv_alloc(m->plain_bytes, 1);
    assert_true(m->plain && m->packed && m->back);
    kv_random random;
    kv_random_init(&random, (uint64_t)rows * 1000 + (uint64_t)blocks);
    for (size_t i = 0; i < m->plain_bytes; i++) m->plain[i] = (uint8_t)kv_random_u64(&random);
}

static void close_matrix(matrix *m) {
    kv_free(m->plain);
    kv_free(m->packed);
    kv_free(m->back);
}

static void for_every_matrix(law *holds) {
    for (int32_t i = 0; i < kv_layout_count() + N_MADE_UP; i++)
        for (int32_t k = 0; k < kv_dtype_count(); k++)
            for (size_t r = 0; r < sizeof row_counts / sizeof *row_counts; r++)
                for (size_t b = 0; b < sizeof block_counts / sizeof *block_counts; b++) {
                    matrix m;
                    open_matrix(&m, i < kv_layout_count() ? kv_layout_at(i) : &made_up[i - kv_layout_count()],
                                kv_dtype_at(k), row_counts[r], block_counts[b]);
                    holds(&m);
                    close_matrix(&m);
                }
}

static void pack_all(const matrix *m) {
    kv_layout_pack(m->l, m->d, m->cols, m->packed, m->plain, 0, m->rows);
}

/* Calls visit for each byte of the plain matrix with its place in the layout. */
static void for_every_byte(const matrix *m, void (*visit)(void *user, size_t plain, size_t at), void *user) {
    size_t plain = 0;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t b = 0; b < m->cols / m->d->block_elems; b++)
            for (int32_t p = 0; p < m->d->n_planes; p++)
                for (int32_t i = 0; i < m->d->plane_bytes[p]; i++)
                    visit(user, plain++, kv_layout_locate(m->l, m->d, m->cols, r, b, p, i));
    assert_int_equal(plain, m->plain_bytes);
}

/* ---- the sizes */

static void sizes(const matrix *m) {
    int64_t tiles = (m->rows + m->l->tile - 1) / m->l->tile;
    assert_int_equal(kv_layout_tile_bytes(m->l, m->d, m->cols), m->row_bytes * (size_t)m->l->tile);
    assert_int_equal(m->bytes, (size_t)tiles * m->row_bytes * (size_t)m->l->tile);
    int32_t sum = 0;
    for (int32_t p = 0; p < m->d->n_planes; p++) sum += m->d->plane_bytes[p];
    assert_int_equal(sum, m->d->block_bytes);
}

static void test_sizes(void **state) {
    (void)state;
    for_every_matrix(sizes);
}

/* ---- the address function */

typedef struct seen {
    const matrix *m;
    uint8_t *taken;
} seen;

static void take_place(void *user, size_t plain, size_t at) {
    seen *s = user;
    (void)plain;
    assert_true(at < s->m->bytes);
    assert_int_equal(s->taken[at], 0);
    s->taken[at] = 1;
}

static void one_place_each(const matrix *m) {
    seen s = {m, kv_alloc(m->bytes, 1)};
    assert_non_null(s.taken);
    for_every_byte(m, take_place, &s);
    kv_free(s.taken);
}

static void test_every_byte_has_a_place_of_its_own(void **state) {
    (void)state;
    for_every_matrix(one_place_each);
}

static void compare_place(void *user, size_t plain, size_t at) {
    const matrix *m = user;
    assert_int_equal(m->packed[at], m->plain[plain]);
}

static void pack_is_locate(const matrix *m) {
    pack_all(m);
    for_every_byte(m, compare_place, (void *)(uintptr_t)m);
}

static void test_pack_follows_the_address_function(void **state) {
    (void)state;
    for_every_matrix(pack_is_locate);
}

/* In a plane the rows of a tile take turns of `chunk` bytes, wherever planes are multiples of it. */
static void test_turns_of_a_plane(void **state) {
    (void)state;
    const kv_layout *l = &kv_layout_tile16x4;
    const kv_dtype *d = &kv_dtype_q8_0; /* planes of 2 and 32 bytes */
    size_t first = kv_layout_locate(l, d, 64, 0, 0, 1, 0);
    assert_int_equal(first, 2 * 16);
    assert_int_equal(kv_layout_locate(l, d, 64, 1, 0, 1, 0), first + 4);
    assert_int_equal(kv_layout_locate(l, d, 64, 0, 0, 1, 4), first + 64);
    assert_int_equal(kv_layout_locate(l, d, 64, 3, 0, 0, 1), 3 * 2 + 1);
    assert_int_equal(kv_layout_locate(l, d, 64, 0, 1, 0, 0), 34 * 16);
    assert_int_equal(kv_layout_locate(l, d, 64, 16, 0, 0, 0), 2 * 34 * 16);
}

/* ---- there and back */

static void unpack_is_inverse(const matrix *m) {
    pack_all(m);
    kv_layout_unpack(m->l, m->d, m->cols, m->back, m->packed, 0, m->rows);
    assert_memory_equal(m->back, m->plain, m->plain_bytes);
}

static void test_unpack_inverts_pack(void **state) {
    (void)state;
    for_every_matrix(unpack_is_inverse);
}

/* Rows one by one and in uneven parts, in an order that is not theirs. */
static void parts_like_whole(const matrix *m) {
    pack_all(m);
    uint8_t *whole = kv_alloc(m->bytes, 1);
    assert_non_null(whole);
    memcpy(whole, m->packed, m->bytes);
    memset(m->packed, 0, m->bytes);
    int64_t size = m->rows / 3 + 1, first = (m->rows - 1) / size * size;
    for (; first >= 0; first -= size) {
        int64_t n = m->rows - first < size ? m->rows - first : size;
        size_t at = (size_t)first * m->row_bytes;
        kv_layout_pack(m->l, m->d, m->cols, m->packed, m->plain + at, first, n);
    }
    assert_memory_equal(m->packed, whole, m->bytes);
    for (int64_t r = m->rows - 1; r >= 0; r--) {
        kv_layout_unpack(m->l, m->d, m->cols, m->back, m->packed, r, 1);
        assert_memory_equal(m->back, m->plain + (size_t)r * m->row_bytes, m->row_bytes);
    }
    kv_free(whole);
}

static void test_parts_go_like_the_whole(void **state) {
    (void)state;
    for_every_matrix(parts_like_whole);
}

/* ---- padding */

static void mark_place(void *user, size_t plain, size_t at) {
    (void)plain;
    ((seen *)user)->taken[at] = 1;
}

static void padding_untouched(const matrix *m) {
    seen s = {m, kv_alloc(m->bytes, 1)};
    assert_non_null(s.taken);
    pack_all(m); /* into zeros: padding stays zero */
    for_every_byte(m, mark_place, &s);
    size_t padding = 0;
    for (size_t i = 0; i < m->bytes; i++)
        if (!s.taken[i]) {
            assert_int_equal(m->packed[i], 0);
            padding++;
        }
    assert_int_equal(padding, m->bytes - m->plain_bytes);
    kv_free(s.taken);
}

static void test_padding_stays_zero(void **state) {
    (void)state;
    for_every_matrix(padding_untouched);
}

static void test_names(void **state) {
    (void)state;
    for (int32_t i = 0; i < kv_layout_count(); i++)
        assert_ptr_equal(kv_layout_by_name(kv_layout_at(i)->name), kv_layout_at(i));
    assert_null(kv_layout_by_name("no such layout"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_every_byte_has_a_place_of_its_own),
        cmocka_unit_test(test_pack_follows_the_address_function),
        cmocka_unit_test(test_turns_of_a_plane),
        cmocka_unit_test(test_unpack_inverts_pack),
        cmocka_unit_test(test_parts_go_like_the_whole),
        cmocka_unit_test(test_padding_stays_zero),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("layouts", tests, NULL, NULL);
}
