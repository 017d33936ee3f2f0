/* test_dtype_close.c: the types for caches and the closest codes of the others, against oracles in double:
 * blocks read bit by bit as the headers describe them, and an exhaustive search for the least error that a
 * block can have.
 *
 * ctest: single */
#include "base/half.h"
#include "base/random.h"
#include "dtype/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ELEMS = 32, BLOCKS = 200, LEVELS = 64 };

/* ---- the formats, told a second time ---- */

typedef struct oracle {
    const kv_dtype *dtype;
    int bits;
    double levels[LEVELS], unit;
    int (*quant)(const uint8_t *block, int i);
} oracle;

static int bit_of(const uint8_t *bytes, int i) { return bytes[i / 8] >> i % 8 & 1; }
static int nibble_of(const uint8_t *bytes, int i) { return i < 16 ? bytes[i] % 16 : bytes[i - 16] / 16; }
/* Numbers 0 to 7 have the lowest two bits of bytes 0 to 7, 8 to 15 the next ones, and so on. */
static int pair_of(const uint8_t *bytes, int i) {
    int at = 8 * (i % 8) + 2 * (i / 8);
    return bit_of(bytes, at) + 2 * bit_of(bytes, at + 1);
}

static int quant_n3(const uint8_t *b, int i) { return pair_of(b + 6, i) + 4 * bit_of(b + 2, i); }
static int quant_n4(const uint8_t *b, int i) { return nibble_of(b + 2, i); }
static int quant_n6(const uint8_t *b, int i) { return nibble_of(b + 10, i) + 16 * pair_of(b + 2, i); }

static oracle oracle_at(int k) {
    oracle list[3] = {
        {&kv_dtype_n3, 3, {-127, -79, -45, -15, 15, 45, 79, 127}, 6, quant_n3},
        {&kv_dtype_n4,
         4,
         {-127, -102, -82, -65, -49, -34, -20, -7, 7, 20, 34, 49, 65, 82, 102, 127},
         6,
         quant_n4},
        {&kv_dtype_n6, 6, {0}, 1.5, quant_n6},
    };
    for (int i = 0; i < LEVELS; i++) list[2].levels[i] = i - 31.5;
    return list[k];
}

/* A sixteenth of an f16 without its four lowest bits, sign and all. */
static double scale_of(int head) {
    int exponent = head >> 10 & 31, mantissa = head >> 4 & 63;
    double sign = head >> 15 ? -1 : 1;
    if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(64 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

static double decoded(const oracle *o, const uint8_t *block, int i) {
    int head = block[0] | block[1] << 8;
    return scale_of(head) * (o->levels[o->quant(block, i)] + o->unit * (head % 16 - 7.5));
}

static void test_decode(void **state) {
    (void)state;
    kv_random r;
    kv_random_init(&r, 1);
    for (int k = 0; k < 3; k++) {
        oracle o = oracle_at(k);
        for (int round = 0; round < 2000; round++) {
            uint8_t block[32];
            float got[ELEMS];
            for (int i = 0; i < o.dtype->block_bytes; i++) block[i] = (uint8_t)kv_random_u64(&r);
            o.dtype->decode(got, block, ELEMS);
            for (int i = 0; i < ELEMS; i++) {
                float want = (float)decoded(&o, block, i);
                if (!(got[i] == want || (isnan(got[i]) && isnan(want))))
                    fail_msg("%s: [%d] is %.9g, not %.9g", o.dtype->name, i, (double)got[i], (double)want);
            }
        }
    }
}

/* ---- how close ---- */

static double error_between(const float *x, const float *y) {
    double sum = 0;
    for (int i = 0; i < ELEMS; i++) sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    return sum;
}

static double distance_to_levels(const oracle *o, double z) {
    double least = INFINITY;
    for (int l = 0; l < 1 << o->bits; l++) least = fmin(least, fabs(z - o->levels[l]));
    return least;
}

/* The least error of all scales near the covering one and all shifts. */
static double least_error(const oracle *o, const float *x) {
    double low = x[0], high = x[0], least = INFINITY;
    for (int i = 1; i < ELEMS; i++) low = fmin(low, x[i]), high = fmax(high, x[i]);
    double cover = (high - low) / (-2 * o->levels[0]);
    for (int head = 0; head < 0x7c00; head++) {
        double scale = scale_of(head), sum = 0;
        if (scale < 0.8 * cover || scale > 1.3 * cover) continue;
        for (int i = 0; i < ELEMS && sum < least; i++) {
            double miss = scale * distance_to_levels(o, x[i] / scale - o->unit * (head % 16 - 7.5));
            sum += miss * miss;
        }
        least = fmin(least, sum);
    }
    return least;
}

static void draw(float *x, kv_random *r) {
    for (int i = 0; i < ELEMS; i++) x[i] = kv_random_normal(r);
}

static double coded_error(void (*encode)(void *, const float *, int64_t), const kv_dtype *d, const float *x) {
    uint8_t block[64];
    float y[ELEMS];
    encode(block, x, ELEMS);
    d->decode(y, block, ELEMS);
    return error_between(x, y);
}

/* Sixteen trials find what thousands do, nearly. */
static void test_near_the_best(void **state) {
    (void)state;
    kv_random r;
    kv_random_init(&r, 2);
    for (int k = 0; k < 3; k++) {
        oracle o = oracle_at(k);
        double all = 0, all_least = 0;
        for (int b = 0; b < BLOCKS / 4; b++) {
            float x[ELEMS];
            draw(x, &r);
            double error = coded_error(o.dtype->encode, o.dtype, x), least = least_error(&o, x);
            if (error < least * (1 - 1e-4)) fail_msg("%s: less error than the oracle finds", o.dtype->name);
            all += error;
            all_least += least;
        }
        if (all > 1.08 * all_least) fail_msg("%s: %g times the least error", o.dtype->name, all / all_least);
    }
}

/* By how much the closest codes lower the squared error of normal numbers; the usual encoder of iq4_nl
 * searches too. */
static void test_closer(void **state) {
    (void)state;
    static const struct {
        const kv_dtype *dtype;
        double most; /* of the usual encoder's error */
    } list[] = {{&kv_dtype_q4_0, .90},
                {&kv_dtype_q4_1, .83},
                {&kv_dtype_q5_0, .90},
                {&kv_dtype_q5_1, .83},
                {&kv_dtype_iq4_nl, 1}};
    for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
        const kv_dtype *d = list[k].dtype;
        kv_random r;
        kv_random_init(&r, 3);
        double usual = 0, closest = 0;
        for (int b = 0; b < 4 * BLOCKS; b++) {
            float x[ELEMS];
            draw(x, &r);
            usual += coded_error(d->encode, d, x);
            closest += coded_error(d->encode_close, d, x);
        }
        if (!(closest < list[k].most * usual))
            fail_msg("%s: %g of the usual error", d->name, closest / usual);
    }
}

/* ---- awkward blocks ---- */

static void check_awkward(const kv_dtype *d) {
    static const float values[] = {0,      -0.0f, 1,     -1,       1e-3f,     -300,
                                   1e-30f, 1e6f,  1e30f, INFINITY, -INFINITY, NAN};
    enum { N = sizeof values / sizeof *values };
    uint8_t block[64];
    float x[ELEMS], y[ELEMS];
    for (int k = 0; k < N * N; k++) {
        for (int i = 0; i < ELEMS; i++) x[i] = i < 16 ? values[k % N] : values[k / N];
        kv_dtype_encode_close(d, block, x, ELEMS);
        d->decode(y, block, ELEMS);
        for (int i = 0; i < ELEMS; i++) {
            if (!isfinite(y[i])) fail_msg("%s: pair %d decodes to %g", d->name, k, (double)y[i]);
            bool same = k % N == k / N, exact_enough = fabsf(y[i] - x[i]) <= 0.01f * fabsf(x[i]) + 1e-6f;
            if (same && fabsf(x[i]) <= 300 && !exact_enough)
                fail_msg("%s: all %g becomes %g", d->name, (double)x[i], (double)y[i]);
        }
    }
}

static void test_awkward(void **state) {
    (void)state;
    for (int32_t i = 0; i < kv_dtype_count(); i++)
        if (kv_dtype_at(i)->encode_close || (kv_dtype_at(i)->caches && kv_dtype_at(i)->gguf_id < 0))
            check_awkward(kv_dtype_at(i));
}

/* Bits a number: the quants, and two bytes for 32. */
static void test_registered(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        oracle o = oracle_at(k);
        assert_true(o.dtype->caches);
        assert_int_equal(o.dtype->gguf_id, -1);
        assert_int_equal(o.dtype->block_bytes * 8, ELEMS * o.bits + 16);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),  cmocka_unit_test(test_near_the_best), cmocka_unit_test(test_closer),
        cmocka_unit_test(test_awkward), cmocka_unit_test(test_registered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
