/* utf8.c: UTF-8 one character at a time, and the stream that holds back incomplete characters. Well-formed
 * means table 3-7 of the Unicode standard; a malformed run becomes one U+FFFD per maximal subpart, as the
 * standard (and every browser) does it. */
#include "text/utf8.h"

#include <string.h>

static const char replacement[3] = {'\xef', '\xbf', '\xbd'};

/* Length that the lead byte announces (0: not a lead byte) and the range of the second byte. */
static int32_t lead(uint8_t b, uint8_t *low, uint8_t *high) {
    *low = 0x80;
    *high = 0xbf;
    if (b < 0x80) return 1;
    if (b < 0xc2 || b > 0xf4) return 0;
    if (b < 0xe0) return 2;
    if (b == 0xe0) *low = 0xa0;  /* no overlong forms */
    if (b == 0xed) *high = 0x9f; /* no surrogates */
    if (b == 0xf0) *low = 0x90;
    if (b == 0xf4) *high = 0x8f; /* nothing above U+10FFFF */
    return b < 0xf0 ? 3 : 4;
}

/* Bytes at s that begin one character: *length bytes would make it whole. Fewer than that are there, or the
 * next one does not fit. At least 1. */
static int32_t prefix(const uint8_t *s, size_t n, int32_t *length) {
    uint8_t low, high;
    *length = lead(s[0], &low, &high);
    int32_t i = 1;
    for (; i < *length && (size_t)i < n; i++) {
        if (s[i] < low || s[i] > high) break;
        low = 0x80;
        high = 0xbf;
    }
    return i;
}

int32_t kv_utf8_decode(const char *s, size_t n, uint32_t *code) {
    static const uint8_t lead_bits[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const uint8_t *u = (const uint8_t *)s;
    int32_t length;
    *code = 0xfffd;
    if (prefix(u, n, &length) < length || length == 0) return 0;
    uint32_t c = u[0] & lead_bits[length];
    for (int32_t i = 1; i < length; i++) c = c << 6 | (u[i] & 0x3fu);
    *code = c;
    return length;
}

int32_t kv_utf8_encode(uint32_t code, char out[4]) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int32_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int32_t i = n - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80u | (code & 0x3fu));
    out[0] = (char)((0xf00u >> n & 0xf0u) | code);
    return n;
}

/* Moves the characters of s to out; what may still become one stays in `stream`. */
static size_t convert(kv_utf8_stream *stream, const uint8_t *s, size_t n, char *out) {
    size_t written = 0;
    for (size_t i = 0; i < n;) {
        int32_t length, have = prefix(s + i, n - i, &length);
        if (have == length) {
            memcpy(out + written, s + i, (size_t)have);
            written += (size_t)have;
        } else if (length && i + (size_t)have == n) {
            memcpy(stream->tail, s + i, (size_t)have);
            stream->n_tail = have;
        } else {
            memcpy(out + written, replacement, sizeof replacement);
            written += sizeof replacement;
        }
        i += (size_t)have;
    }
    return written;
}

size_t kv_utf8_push(kv_utf8_stream *s, const char *bytes, size_t n, char *out) {
    size_t written = 0;
    while (s->n_tail && n) { /* the tail first, byte by byte */
        uint8_t joined[4];
        size_t n_joined = (size_t)s->n_tail;
        memcpy(joined, s->tail, n_joined);
        joined[n_joined++] = (uint8_t)*bytes++;
        n--;
        s->n_tail = 0;
        written += convert(s, joined, n_joined, out + written);
    }
    return written + convert(s, (const uint8_t *)bytes, n, out + written);
}

size_t kv_utf8_flush(kv_utf8_stream *s, char *out) {
    if (s->n_tail == 0) return 0;
    s->n_tail = 0;
    memcpy(out, replacement, sizeof replacement);
    return sizeof replacement;
}
