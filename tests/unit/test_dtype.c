/* test_dtype.c: laws that hold for every dtype: the registry is sound, encoding loses no more than its bits
 * allow, encoding what was decoded changes next to nothing, any float gives blocks that decode, any address
 * will do.
 *
 * ctest: single */
#include "base/half.h"
#include "base/random.h"
#include "dtype/dtype.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N = 1 << 14 };

/* What the format says, and the relative error (root of the mean square) that encoding normal numbers may
 * have: 1 % above what was measured when the encoders were written. */
static const struct expected {
    const char *name;
    int32_t id, elems, bytes;
    double error, again; /* again: of encoding the decoded numbers once more */
} expected[] = {
    {"f32", 0, 1, 4, 0, 0},
    {"f16", 1, 1, 2, 2.2e-4, 0},
    {"bf16", 30, 1, 2, 1.69e-3, 0},
    {"q4_0", 2, 32, 18, .0860, 0},
    {"q4_1", 3, 32, 20, .0791, 0},
    {"q5_0", 6, 32, 22, .0430, 0},
    {"q5_1", 7, 32, 24, .0383, 0},
    {"q8_0", 8, 32, 34, .00539, 0},
    {"q2_k", 10, 256, 84, .2717, .02},
    {"q3_k", 11, 256, 110, .1455, .003},
    {"q4_k", 12, 256, 144, .0713, .006},
    {"q5_k", 13, 256, 176, .0351, .006},
    {"q6_k", 14, 256, 210, .0171, .002},
    {"iq4_nl", 20, 32, 18, .0743, 0},
    {"iq4_xs", 23, 256, 136, .0751, .002},
    {"n3", -1, 32, 14, .1420, .02},
    {"n4", -1, 32, 18, .0683, .02},
    {"n6", -1, 32, 26, .0177, .02},
    {"a8", -1, 32, 40, .00539, 1e-6},
};

static const struct expected *expectation(const kv_dtype *d) {
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (strcmp(expected[i].name, d->name) == 0) return expected + i;
    fail_msg("dtype %s is not in this test", d->name);
    return NULL;
}

/* The numbers after encoding and decoding; buffers of exactly the size, so that a sanitizer sees each step
 * beyond. */
static void round_trip(float *out, const kv_dtype *d, const float *x, int32_t n) {
    uint8_t *bytes = malloc(kv_dtype_bytes(d, n));
    d->encode(bytes, x, n);
    d->decode(out, bytes, n);
    free(bytes);
}

static void draw_normal(float *x, int32_t n, uint64_t seed) {
    kv_random r;
    kv_random_init(&r, seed);
    for (int32_t i = 0; i < n; i++) x[i] = kv_random_normal(&r);
}

static double relative_error(const float *x, const float *y, int32_t n) {
    double error = 0, square = 0;
    for (int32_t i = 0; i < n; i++) {
        error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        square += (double)x[i] * x[i];
    }
    return sqrt(error / square);
}

static void for_each_dtype(void (*check)(const kv_dtype *)) {
    for (int32_t i = 0; i < kv_dtype_count(); i++) check(kv_dtype_at(i));
}

/* ---- registry ---- */

static void check_description(const kv_dtype *d) {
    const struct expected *e = expectation(d);
    int32_t plane_bytes = 0;
    for (int32_t p = 0; p < d->n_planes; p++) {
        assert_true(d->plane_bytes[p] > 0);
        plane_bytes += d->plane_bytes[p];
    }
    assert_int_equal(plane_bytes, d->block_bytes);
    assert_int_equal(d->gguf_id, e->id);
    assert_int_equal(d->block_elems, e->elems);
    assert_int_equal(d->block_bytes, e->bytes);
    assert_non_null(d->decode);
    assert_non_null(d->encode);
    assert_ptr_equal(kv_dtype_by_name(d->name), d);
    assert_ptr_equal(kv_dtype_by_gguf_id(d->gguf_id), d->gguf_id < 0 ? NULL : d);
    assert_int_equal(d->act_8bit, d->block_elems > 1 && strcmp(d->name, "a8") != 0);
}

static void test_registry(void **state) {
    (void)state;
    assert_int_equal(kv_dtype_count(), sizeof expected / sizeof *expected);
    for_each_dtype(check_description);
    assert_null(kv_dtype_by_name("q9_9"));
    assert_null(kv_dtype_by_name(""));
    assert_null(kv_dtype_by_gguf_id(-1));
    assert_null(kv_dtype_by_gguf_id(4)); /* was removed from the format */
    assert_null(kv_dtype_by_gguf_id(INT32_MAX));
}

/* ---- what encoding loses ---- */

static void check_error(const kv_dtype *d) {
    static float x[N], once[N], twice[N];
    const struct expected *e = expectation(d);
    draw_normal(x, N, 7);
    round_trip(once, d, x, N);
    round_trip(twice, d, once, N);
    double error = relative_error(x, once, N), again = relative_error(once, twice, N);
    if (!(error <= e->error)) fail_msg("%s: error %g, more than %g", d->name, error, e->error);
    if (!(again <= e->again)) fail_msg("%s: encoded again, error %g, more than %g", d->name, again, e->again);
}

static void test_error(void **state) {
    (void)state;
    for_each_dtype(check_error);
}

/* Scales are floats and searches start from the largest number: a power of two passes through, bit for bit.
 */
static void check_scaling(const kv_dtype *d) {
    static float x[N], scaled[N], y[N], z[N];
    draw_normal(x, N, 8);
    for (int32_t i = 0; i < N; i++) scaled[i] = 8 * x[i];
    round_trip(y, d, x, N);
    round_trip(z, d, scaled, N);
    for (int32_t i = 0; i < N; i++)
        if (z[i] != 8 * y[i] && fabsf(x[i]) > 1e-4f) /* below it f16 numbers are subnormal */
            fail_msg("%s: %g becomes %g, but 8 times it %g", d->name, (double)x[i], (double)y[i],
                     (double)z[i]);
}

static void test_scaling(void **state) {
    (void)state;
    for_each_dtype(check_scaling);
}

/* ---- awkward numbers ---- */

static void check_constants(const kv_dtype *d) {
    static const float constants[] = {0, 1, -1, 0.01f, -0.01f, 300};
    for (size_t c = 0; c < sizeof constants / sizeof *constants; c++) {
        float x[256], y[256];
        for (int32_t i = 0; i < 256; i++) x[i] = constants[c];
        round_trip(y, d, x, 256);
        for (int32_t i = 0; i < 256; i++)
            if (!(fabsf(y[i] - x[i]) <= 0.01f * fabsf(x[i])))
                fail_msg("%s: all %g becomes %g", d->name, (double)x[i], (double)y[i]);
    }
}

static void test_constants(void **state) {
    (void)state;
    for_each_dtype(check_constants);
}

static float extreme_number(kv_random *r) {
    static const float extremes[] = {FLT_MAX, -FLT_MAX, FLT_MIN, FLT_TRUE_MIN, -FLT_TRUE_MIN,
                                     0,       -0.0f,    65504,   65520,        1e30f,
                                     -1e-30f, 1,        -1e6f};
    return extremes[kv_random_u64(r) % (sizeof extremes / sizeof *extremes)];
}

/* Finite numbers of any size decode to finite ones in every block format of files; the others may round up to
 * Inf. */
static void check_extremes(const kv_dtype *d) {
    kv_random r;
    kv_random_init(&r, 9);
    for (int round = 0; round < 200; round++) {
        float x[256], y[256], only = extreme_number(&r);
        for (int32_t i = 0; i < 256; i++) x[i] = round < 20 ? only : extreme_number(&r);
        round_trip(y, d, x, 256);
        for (int32_t i = 0; i < 256; i++)
            if (isnan(y[i]) || (isinf(y[i]) && d->block_elems > 1 && d->gguf_id >= 0))
                fail_msg("%s: %g becomes %g", d->name, (double)x[i], (double)y[i]);
    }
}

static void test_extremes(void **state) {
    (void)state;
    for_each_dtype(check_extremes);
}

/* Whatever comes out, encoding Inf and NaN is defined (the sanitizers watch) and does not touch other blocks.
 */
static void check_not_finite(const kv_dtype *d) {
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t c = 0; c < 3; c++) {
        float x[512], clean[512], y[512];
        draw_normal(x, 512, 10);
        round_trip(clean, d, x, 512);
        x[5] = bad[c];
        x[200] = bad[c];
        round_trip(y, d, x, 512);
        assert_memory_equal(y + 256, clean + 256, 256 * sizeof *y);
    }
}

static void test_not_finite(void **state) {
    (void)state;
    for_each_dtype(check_not_finite);
}

/* ---- bytes ---- */

static void check_addresses(const kv_dtype *d) {
    float x[512], aligned[512], moved[512];
    size_t size = kv_dtype_bytes(d, 512);
    draw_normal(x, 512, 11);
    for (size_t shift = 0; shift < 8; shift++) {
        uint8_t *bytes = malloc(size + shift);
        d->encode(bytes + shift, x, 512);
        d->decode(moved, bytes + shift, 512);
        if (shift == 0) memcpy(aligned, moved, sizeof aligned);
        assert_memory_equal(moved, aligned, sizeof aligned);
        free(bytes);
    }
}

static void test_addresses(void **state) {
    (void)state;
    for_each_dtype(check_addresses);
}

/* Every byte string decodes: nothing in a block is an index without a bound. */
static void check_any_bytes(const kv_dtype *d) {
    kv_random r;
    kv_random_init(&r, 12);
    float y[1024];
    size_t size = kv_dtype_bytes(d, 1024);
    uint8_t *bytes = malloc(size);
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)kv_random_u64(&r);
        d->decode(y, bytes, 1024);
    }
    free(bytes);
}

static void test_any_bytes(void **state) {
    (void)state;
    for_each_dtype(check_any_bytes);
}

/* Every number of 16 bits survives decode and encode; NaNs stay NaNs. */
static void test_halves(void **state) {
    (void)state;
    const kv_dtype *const halves[] = {&kv_dtype_f16, &kv_dtype_bf16};
    for (size_t k = 0; k < 2; k++)
        for (uint32_t bits = 0; bits < 65536; bits++) {
            uint16_t in = (uint16_t)bits, out;
            float x, y;
            halves[k]->decode(&x, &in, 1);
            halves[k]->encode(&out, &x, 1);
            halves[k]->decode(&y, &out, 1);
            if (isnan(x) ? !isnan(y) : out != in) fail_msg("%s: %04x becomes %04x", halves[k]->name, in, out);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry),  cmocka_unit_test(test_error),     cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_constants), cmocka_unit_test(test_extremes),  cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_addresses), cmocka_unit_test(test_any_bytes), cmocka_unit_test(test_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
