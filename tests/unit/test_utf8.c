/* UTF-8: every code point and malformed form, and streams cut anywhere (field report F28).
 *
 * ctest: single */
#include "text_fixture.h"

#include "base/random.h"
#include "text/utf8.h"

static void test_code_points(void **state) {
    (void)state;
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        char s[4];
        uint32_t back;
        if (code >= 0xd800 && code <= 0xdfff) continue;
        int32_t n = kv_utf8_encode(code, s);
        assert_int_equal(n, code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4);
        assert_int_equal(kv_utf8_decode(s, 4, &back), n);
        assert_int_equal(back, code);
        for (int32_t cut = 1; cut < n; cut++) assert_int_equal(kv_utf8_decode(s, (size_t)cut, &back), 0);
    }
}

static void test_malformed(void **state) {
    (void)state;
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x80\x80",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "\xfe",
        "\xc3(",
        "\xe2\x82(",
        "\xf0\x9f\x98(",
        "\xf8\x88\x80\x80\x80",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint32_t code = 0;
        assert_int_equal(kv_utf8_decode(bad[i], strlen(bad[i]), &code), 0);
        assert_int_equal(code, 0xfffd);
    }
}

/* Pushes the bytes in pieces of at most `step` (0: random sizes) and flushes; every piece given out must be
 * whole characters. */
static size_t stream(const char *bytes, size_t n, size_t step, kv_random *random, char *out) {
    kv_utf8_stream s = {0};
    size_t written = 0;
    for (size_t i = 0, take; i < n; i += take) {
        take = step ? step : kv_random_u64(random) % 5;
        if (take > n - i) take = n - i;
        char piece[3 * 64];
        assert_true(kv_utf8_push_max(take) <= sizeof piece);
        size_t got = kv_utf8_push(&s, bytes + i, take, piece);
        assert_true(got <= kv_utf8_push_max(take) && s.n_tail <= 3);
        for (size_t k = 0; k < got;) {
            uint32_t code;
            int32_t length = kv_utf8_decode(piece + k, got - k, &code);
            assert_true(length > 0);
            k += (size_t)length;
        }
        memcpy(out + written, piece, got);
        written += got;
    }
    written += kv_utf8_flush(&s, out + written);
    assert_int_equal(kv_utf8_flush(&s, out + written), 0);
    return written;
}

static void check_stream(const char *bytes, const char *expected) {
    char out[128];
    for (size_t step = 1; step < 8; step++) {
        size_t n = stream(bytes, strlen(bytes), step, NULL, out);
        assert_int_equal(n, strlen(expected));
        assert_memory_equal(out, expected, n);
    }
}

/* The expected text is what Python's bytes.decode("utf-8", "replace") gives. */
static void test_streams(void **state) {
    (void)state;
    check_stream("", "");
    check_stream("plain", "plain");
    check_stream("\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80");
    check_stream("a\xe6\xad\xaa!", "a\xe6\xad\xaa!");
    check_stream("\xc3", "\xef\xbf\xbd");
    check_stream("\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd");
    check_stream("\xf0\x9f\x98(", "\xef\xbf\xbd(");
    check_stream("\xe2\x82\xf0\x9f\x98\x80", "\xef\xbf\xbd\xf0\x9f\x98\x80");
    check_stream("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    check_stream("\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd");
    check_stream("\xf0\x9f\x98", "\xef\xbf\xbd");
    check_stream("\xf0\x80\x80(", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd(");
}

/* However a text is cut, the result is the same. */
static void test_cuts(void **state) {
    (void)state;
    static const char alphabet[] = "a\x80\xbf\xc3\xe2\x82\xac\xf0\x9f\x98\x80\xff\xed\xa0\xf4\x90";
    kv_random r;
    kv_random_init(&r, 3);
    for (int round = 0; round < 20000; round++) {
        char bytes[60], whole[200], cut[200];
        size_t n = kv_random_u64(&r) % sizeof bytes;
        for (size_t i = 0; i < n; i++)
            bytes[i] =
                round % 2 ? alphabet[kv_random_u64(&r) % (sizeof alphabet - 1)] : (char)kv_random_u64(&r);
        size_t n_whole = stream(bytes, n, 60, NULL, whole), n_cut = stream(bytes, n, 0, &r, cut);
        assert_int_equal(n_whole, n_cut);
        assert_memory_equal(whole, cut, n_cut);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_code_points),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_cuts),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
