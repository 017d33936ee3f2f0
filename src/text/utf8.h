/* utf8.h: whole characters out of a stream of byte pieces. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Holds back an incomplete tail (3 bytes at most); an invalid byte becomes U+FFFD once. */
typedef struct kv_utf8_stream {
    uint8_t tail[4];
    int32_t n_tail;
} kv_utf8_stream;

/* Bytes that kv_utf8_push may write for n input bytes. */
static inline size_t kv_utf8_push_max(size_t n) { return 3 * (n + 4); }
/* Appends the valid text of tail + bytes to `out` and returns its length. */
size_t kv_utf8_push(kv_utf8_stream *s, const char *bytes, size_t n, char *out);
/* The end of the stream: an incomplete tail becomes one U+FFFD. */
size_t kv_utf8_flush(kv_utf8_stream *s, char *out);

/* Decodes one character at s (n > 0 bytes left) into *code; returns its length, or 0 and *code = U+FFFD if
 * the bytes there are not valid UTF-8 (overlong forms, surrogates and > U+10FFFF included). */
int32_t kv_utf8_decode(const char *s, size_t n, uint32_t *code);
/* Encodes a code point; returns 1 to 4. */
int32_t kv_utf8_encode(uint32_t code, char out[4]);
