/* test_base_half: binary16 and bfloat16 against an oracle written from the formats' definitions: every code
 * is decoded, every rounding boundary is encoded from both sides.
 *
 * ctest: single */
#include "base/half.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The value of a code with `m_bits` of mantissa and `e_bits` of exponent, as the IEEE standard defines it. */
static double value_of(uint32_t code, int e_bits, int m_bits) {
    uint32_t mantissa = code & ((1u << m_bits) - 1), exponent = code >> m_bits & ((1u << e_bits) - 1);
    int bias = (1 << (e_bits - 1)) - 1;
    double sign = code >> (e_bits + m_bits) & 1u ? -1.0 : 1.0;
    if (exponent == (1u << e_bits) - 1) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - m_bits);
    return sign * ldexp((double)(mantissa | 1u << m_bits), (int)exponent - bias - m_bits);
}

typedef struct format {
    int e_bits, m_bits;
    uint32_t infinity; /* its code */
    float (*decode)(uint16_t);
    uint16_t (*encode)(float);
} format;

static const format f16 = {5, 10, 0x7c00, kv_f16_to_f32, kv_f16_from_f32};
static const format bf16 = {8, 7, 0x7f80, kv_bf16_to_f32, kv_bf16_from_f32};

static void check_every_code(const format *f) {
    for (uint32_t code = 0; code < 65536; code++) {
        float got = f->decode((uint16_t)code);
        double want = value_of(code, f->e_bits, f->m_bits);
        if (isnan(want)) {
            assert_true(isnan(got));
            uint16_t again = f->encode(got);
            assert_true(isnan(f->decode(again)));
        } else {
            assert_true((double)got == want && !signbit(got) == !signbit(want));
            assert_int_equal(f->encode(got), code);
        }
    }
}

static void check_encodes(const format *f, float x, uint32_t want) {
    uint16_t got = f->encode(x), negative = f->encode(-x);
    if (got != want) fail_msg("%a is coded as 0x%04x, not 0x%04x", (double)x, got, want);
    assert_int_equal(negative, want | 0x8000u);
}

/* Halfway between two neighbours the even code wins; a step of an f32 to either side decides. The step after
 * the greatest number leads to where the next one would be, which stands for infinity. */
static void check_every_boundary(const format *f) {
    for (uint32_t code = 0; code < f->infinity; code++) {
        double low = value_of(code, f->e_bits, f->m_bits);
        double high = code + 1 < f->infinity ? value_of(code + 1, f->e_bits, f->m_bits)
                                             : ldexp(1.0, 1 << (f->e_bits - 1));
        float middle = (float)((low + high) / 2);
        assert_true((double)middle == (low + high) / 2);
        check_encodes(f, middle, code + (code & 1u));
        check_encodes(f, nextafterf(middle, 0.0f), code);
        check_encodes(f, nextafterf(middle, INFINITY), code + 1);
    }
    check_encodes(f, INFINITY, f->infinity);
}

static void test_f16_every_code(void **state) {
    (void)state;
    check_every_code(&f16);
}

static void test_f16_every_boundary(void **state) {
    (void)state;
    check_every_boundary(&f16);
    check_encodes(&f16, 3.4e38f, f16.infinity);
}

static void test_bf16_every_code(void **state) {
    (void)state;
    check_every_code(&bf16);
}

static void test_bf16_every_boundary(void **state) {
    (void)state;
    check_every_boundary(&bf16);
}

/* All NaNs stay NaNs and keep their sign, also those whose payload lies in the bits that are cut. */
static void test_nan(void **state) {
    (void)state;
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffc01234, 0x7f801fff};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        float x = kv_f32_from_bits(nans[i]);
        uint16_t half = kv_f16_from_f32(x), brain = kv_bf16_from_f32(x);
        assert_true(isnan(kv_f16_to_f32(half)) && isnan(kv_bf16_to_f32(brain)));
        assert_int_equal(half >> 15, nans[i] >> 31);
        assert_int_equal(brain >> 15, nans[i] >> 31);
    }
}

/* Any f32 is coded as the nearest value there is. */
static void test_random_bits(void **state) {
    (void)state;
    const uint64_t seed = 7;
    kv_random r;
    kv_random_init(&r, seed);
    for (int i = 0; i < 200000; i++) {
        float x = kv_f32_from_bits((uint32_t)kv_random_u64(&r));
        if (isnan(x)) continue;
        for (const format *f = &f16; f; f = f == &f16 ? &bf16 : NULL) {
            uint32_t code = f->encode(x) & 0x7fffu;
            if (code >= f->infinity) continue; /* covered by the boundaries */
            double at = fabs((double)x), error = fabs(at - value_of(code, f->e_bits, f->m_bits));
            assert_true(code == 0 || error <= fabs(at - value_of(code - 1, f->e_bits, f->m_bits)));
            assert_true(error <= fabs(at - value_of(code + 1, f->e_bits, f->m_bits)));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_every_code),
        cmocka_unit_test(test_f16_every_boundary),
        cmocka_unit_test(test_bf16_every_code),
        cmocka_unit_test(test_bf16_every_boundary),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_random_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
