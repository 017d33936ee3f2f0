/* test_dtype_golden.c: decode and, where it defines one, encode bit for bit as gguf-py. The numbers are in
 * tests/data/dtype_golden.bin, made and described by tools/make_dtype_golden.py.
 *
 * ctest: single */
#include "base/file.h"
#include "dtype/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct record {
    char name[9];
    uint32_t encodes, n_elems, n_bytes;
    const uint8_t *bytes, *source, *decoded; /* f32 at any address */
} record;

typedef struct golden {
    kv_file_map map;
    size_t at;
} golden;

static const uint8_t *take(golden *g, size_t n) {
    assert_true(n <= g->map.size - g->at);
    const uint8_t *p = g->map.data + g->at;
    g->at += n;
    return p;
}

static bool next_record(record *r, golden *g) {
    if (g->at == g->map.size) return false;
    *r = (record){0};
    memcpy(r->name, take(g, 8), 8);
    memcpy(&r->encodes, take(g, 4), 4);
    memcpy(&r->n_elems, take(g, 4), 4);
    memcpy(&r->n_bytes, take(g, 4), 4);
    r->bytes = take(g, r->n_bytes);
    if (r->encodes) r->source = take(g, r->n_elems * sizeof(float));
    r->decoded = take(g, r->n_elems * sizeof(float));
    return true;
}

static const kv_dtype *dtype_of(const record *r) {
    const kv_dtype *d = kv_dtype_by_name(r->name);
    if (!d) fail_msg("no dtype %s", r->name);
    assert_int_equal(r->n_elems % (uint32_t)d->block_elems, 0);
    assert_int_equal(kv_dtype_bytes(d, r->n_elems), r->n_bytes);
    return d;
}

static void expect_same_floats(const record *r, const float *got) {
    for (uint32_t i = 0; i < r->n_elems; i++) {
        float want;
        memcpy(&want, r->decoded + i * sizeof want, sizeof want);
        if (memcmp(&want, got + i, sizeof want) != 0)
            fail_msg("%s: number %u decodes to %.9g, not %.9g", r->name, i, (double)got[i], (double)want);
    }
}

/* At every misalignment too: blocks lie in files at any address. */
static void check_decode(const record *r) {
    const kv_dtype *d = dtype_of(r);
    float *got = malloc(r->n_elems * sizeof *got);
    uint8_t *moved = malloc(r->n_bytes + 8);
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(moved + shift, r->bytes, r->n_bytes);
        memset(got, 0xff, r->n_elems * sizeof *got);
        d->decode(got, moved + shift, r->n_elems);
        expect_same_floats(r, got);
    }
    free(moved);
    free(got);
}

static void check_encode(const record *r) {
    const kv_dtype *d = dtype_of(r);
    float *source = malloc(r->n_elems * sizeof *source);
    uint8_t *got = malloc(r->n_bytes + 1);
    memcpy(source, r->source, r->n_elems * sizeof *source);
    for (size_t shift = 0; shift < 2; shift++) {
        d->encode(got + shift, source, r->n_elems);
        for (uint32_t i = 0; i < r->n_bytes; i++)
            if (got[shift + i] != r->bytes[i])
                fail_msg("%s: byte %u of block %u is %02x, not %02x", r->name, i % (uint32_t)d->block_bytes,
                         i / (uint32_t)d->block_bytes, got[shift + i], r->bytes[i]);
    }
    free(got);
    free(source);
}

static void run(void (*check)(const record *), uint32_t only_encoded, int *n_records) {
    golden g = {0};
    record r;
    assert_int_equal(kv_file_map_open(&g.map, KVANT_SOURCE_DIR "/tests/data/dtype_golden.bin"), KVANT_OK);
    while (next_record(&r, &g)) {
        if (only_encoded && !r.encodes) continue;
        check(&r);
        ++*n_records;
    }
    kv_file_map_close(&g.map);
}

static void test_decode(void **state) {
    (void)state;
    int n = 0;
    run(check_decode, 0, &n);
    assert_int_equal(n, 14 * 2 + 7);
}

static void test_encode(void **state) {
    (void)state;
    int n = 0;
    run(check_encode, 1, &n);
    assert_int_equal(n, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decode), cmocka_unit_test(test_encode)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
