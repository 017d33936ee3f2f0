/* Rotary embedding: rotations add up for both pairings and part of a head, what is not rotary is not touched,
 * frequencies as the papers write them, the magnitude once, far positions.
 *
 * ctest: single */
#include "base/random.h"
#include "op/rope.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { HEAD = 80, MAX_ROT = 80 };

static void rotate(float *x, const kv_rope *rope, double position, float magnitude) {
    float row[MAX_ROT];
    kv_rope_table_row(row, rope, position, magnitude);
    kv_rope_rotate(x, rope, row);
}

static void random_head(float *x, kv_random *r) {
    for (int i = 0; i < HEAD; i++) x[i] = kv_random_normal(r);
}

static kv_rope make_rope(double *freq, int32_t n_rot, kv_rope_pairing pairing) {
    kv_rope_spec spec = {.n_rot = n_rot, .base = 10000, .linear = 1};
    kv_rope_frequencies(freq, &spec);
    return (kv_rope){.n_rot = n_rot, .pairing = pairing, .magnitude = 1, .freq = freq};
}

static void test_rotations_add_up(void **state) {
    (void)state;
    static const double at[] = {0, 1, 7, 1000, 100000, 1e9}, by[] = {-1000, -1, 1, 1000, 1e6, -1e9};
    static const int32_t widths[] = {HEAD, HEAD / 2, 24, 2};
    kv_random random;
    kv_random_init(&random, 1);
    for (int c = 0; c < 4 * 2 * 6 * 6; c++) {
        double freq[MAX_ROT / 2], p = at[c % 6], d = by[c / 6 % 6];
        kv_rope rope = make_rope(freq, widths[c / 36 % 4], c / 144 ? KV_ROPE_HALVES : KV_ROPE_ADJACENT);
        float x[HEAD], whole[HEAD], parts[HEAD];
        random_head(x, &random);
        memcpy(whole, x, sizeof x);
        memcpy(parts, x, sizeof x);
        rotate(whole, &rope, p + d, 1);
        rotate(parts, &rope, p, 1);
        rotate(parts, &rope, d, 1);
        for (int i = 0; i < rope.n_rot; i++) assert_true(fabsf(whole[i] - parts[i]) <= 1e-5f);
        /* the rest of the head: not a bit of it */
        assert_memory_equal(parts + rope.n_rot, x + rope.n_rot, (size_t)(HEAD - rope.n_rot) * sizeof *x);
    }
}

/* Pair i of a rotation, from the definition in double. */
static void test_pairs(void **state) {
    (void)state;
    kv_random random;
    kv_random_init(&random, 2);
    for (int pairing = KV_ROPE_ADJACENT; pairing <= KV_ROPE_HALVES; pairing++) {
        enum { N_ROT = 48 };
        double freq[N_ROT / 2];
        kv_rope rope = make_rope(freq, N_ROT, (kv_rope_pairing)pairing);
        float x[HEAD], y[HEAD];
        random_head(x, &random);
        memcpy(y, x, sizeof x);
        rotate(y, &rope, 123, 1);
        for (int i = 0; i < N_ROT / 2; i++) {
            int a = pairing == KV_ROPE_HALVES ? i : 2 * i,
                b = pairing == KV_ROPE_HALVES ? i + N_ROT / 2 : a + 1;
            double angle = 123 * pow(10000, -2.0 * i / N_ROT);
            assert_true(fabs(x[a] * cos(angle) - x[b] * sin(angle) - y[a]) < 1e-6);
            assert_true(fabs(x[b] * cos(angle) + x[a] * sin(angle) - y[b]) < 1e-6);
        }
    }
}

/* A score depends on the distance of positions, at 1e9 as at 0; the turn of a query moves the frame. */
static void test_far_positions(void **state) {
    (void)state;
    double freq[MAX_ROT / 2];
    kv_random random;
    kv_random_init(&random, 3);
    kv_rope rope = make_rope(freq, HEAD, KV_ROPE_HALVES);
    float q[HEAD], k[HEAD];
    random_head(q, &random);
    random_head(k, &random);
    double expected = 0;
    static const double start[] = {0, 1e6, 1e9, 1e11};
    for (int s = 0; s < 4; s++) {
        float a[HEAD], b[HEAD];
        double score = 0;
        memcpy(a, q, sizeof a);
        memcpy(b, k, sizeof b);
        rotate(a, &rope, start[s] + 100, 1);
        rotate(b, &rope, start[s] + 17, 1);
        for (int i = 0; i < HEAD; i++) score += (double)a[i] * (double)b[i];
        if (!s) expected = score;
        if (!(fabs(score - expected) < 1e-4)) fail_msg("at %g: %.9g, not %.9g", start[s], score, expected);
    }
}

/* M R(m - turn) q: the roped query has the magnitude, a turn adds none. */
static void test_magnitude_once(void **state) {
    (void)state;
    double freq[MAX_ROT / 2];
    kv_random random;
    kv_random_init(&random, 4);
    kv_rope rope = make_rope(freq, 40, KV_ROPE_ADJACENT);
    rope.magnitude = 1.25f;
    float x[HEAD], plain[HEAD], turned[HEAD];
    random_head(x, &random);
    memcpy(plain, x, sizeof x);
    memcpy(turned, x, sizeof x);
    rotate(plain, &rope, 50 - 700, 1);
    rotate(turned, &rope, 50, rope.magnitude);
    rotate(turned, &rope, -700, 1);
    for (int i = 0; i < rope.n_rot; i++) assert_true(fabsf(1.25f * plain[i] - turned[i]) < 1e-5f);
    assert_memory_equal(turned + 40, x + 40, (HEAD - 40) * sizeof *x);
}

/* ---- frequencies ---- */

/* Peng et al. 2023: pairs that turn more often than beta_fast in the original context stay, those that turn
 * less often than beta_slow are interpolated, a ramp between (its ends whole pairs). */
static void test_yarn(void **state) {
    (void)state;
    enum { N = 64 };
    const double base = 10000, s = 4, length = 4096, pi = 3.14159265358979323846;
    double freq[N / 2];
    kv_rope_spec spec = {.n_rot = N,
                         .base = base,
                         .linear = 1,
                         .yarn_factor = s,
                         .yarn_beta_fast = 32,
                         .yarn_beta_slow = 1,
                         .n_ctx_original = 4096};
    kv_rope_frequencies(freq, &spec);
    double before = 2;
    for (int i = 0; i < N / 2; i++) {
        double plain = pow(base, -2.0 * i / N), turns = length * plain / (2 * pi);
        /* within a pair of the ends the rounding of the ramp decides */
        if (turns > 32 * pow(base, 2.0 / N)) assert_true(fabs(freq[i] / plain - 1) < 1e-12);
        if (turns < 1 / pow(base, 2.0 / N)) assert_true(fabs(freq[i] * s / plain - 1) < 1e-12);
        double kept = freq[i] / plain;
        assert_true(kept <= before + 1e-12 && kept >= 1 / s - 1e-12);
        before = kept;
    }
    /* pairs 10 and 23 end the ramp: ceil and floor of where 32 turns and 1 turn lie (10.45 and 22.51) */
    assert_true(fabs(freq[10] / pow(base, -20.0 / N) - 1) < 1e-12);
    assert_true(freq[11] < pow(base, -22.0 / N) * 0.99);
    assert_true(freq[22] > pow(base, -44.0 / N) / s * 1.01);
    assert_true(fabs(freq[23] * s / pow(base, -46.0 / N) - 1) < 1e-12);
    double middle = pow(base, -32.0 / N), ramp = (16.0 - 10) / (23 - 10);
    assert_true(fabs(freq[16] / (middle * (1 - ramp) + middle / s * ramp) - 1) < 1e-12);
}

static void test_factors_and_linear(void **state) {
    (void)state;
    enum { N = 8 };
    static const float factors[N / 2] = {1, 1.5f, 4, 8};
    double freq[N / 2];
    kv_rope_spec spec = {.n_rot = N, .base = 500000, .linear = 1, .factors = factors};
    kv_rope_frequencies(freq, &spec);
    for (int i = 0; i < N / 2; i++)
        assert_true(fabs(freq[i] * (double)factors[i] / pow(500000, -2.0 * i / N) - 1) < 1e-12);
    spec = (kv_rope_spec){.n_rot = N, .base = 500000, .linear = 4};
    kv_rope_frequencies(freq, &spec);
    for (int i = 0; i < N / 2; i++) assert_true(fabs(freq[i] * 4 / pow(500000, -2.0 * i / N) - 1) < 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rotations_add_up),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_far_positions),
        cmocka_unit_test(test_magnitude_once),
        cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_factors_and_linear),
    };
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
