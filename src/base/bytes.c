/* bytes.c: shifts instead of casts, so that neither alignment nor byte order matters. */
#include "base/bytes.h"

#include <string.h>

void kv_put_bytes(kv_byte_writer *w, const void *bytes, size_t n) {
    if (w->failed || !kv_vec_reserve(&w->bytes, w->bytes.count + n)) {
        w->failed = true;
        return;
    }
    if (n) memcpy(w->bytes.at + w->bytes.count, bytes, n);
    w->bytes.count += n;
}

static void put_number(kv_byte_writer *w, uint64_t value, size_t n) {
    uint8_t bytes[8];
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)(value >> (8 * i));
    kv_put_bytes(w, bytes, n);
}

void kv_put_u32(kv_byte_writer *w, uint32_t value) { put_number(w, value, 4); }
void kv_put_u64(kv_byte_writer *w, uint64_t value) { put_number(w, value, 8); }

void kv_put_f32(kv_byte_writer *w, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    kv_put_u32(w, bits);
}

void kv_put_f64(kv_byte_writer *w, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    kv_put_u64(w, bits);
}

void kv_put_text(kv_byte_writer *w, const char *text) {
    size_t n = strlen(text);
    kv_put_u32(w, (uint32_t)n);
    kv_put_bytes(w, text, n);
}

const uint8_t *kv_take_bytes(kv_byte_reader *r, size_t n) {
    if (r->failed || n > kv_bytes_left(r)) {
        r->failed = true;
        return NULL;
    }
    r->at += n;
    return r->at - n;
}

static uint64_t take_number(kv_byte_reader *r, size_t n) {
    const uint8_t *bytes = kv_take_bytes(r, n);
    uint64_t value = 0;
    for (size_t i = 0; bytes && i < n; i++) value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

uint32_t kv_take_u32(kv_byte_reader *r) { return (uint32_t)take_number(r, 4); }
uint64_t kv_take_u64(kv_byte_reader *r) { return take_number(r, 8); }

float kv_take_f32(kv_byte_reader *r) {
    uint32_t bits = kv_take_u32(r);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double kv_take_f64(kv_byte_reader *r) {
    uint64_t bits = kv_take_u64(r);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

kv_byte_text kv_take_text(kv_byte_reader *r) {
    uint32_t n = kv_take_u32(r);
    const uint8_t *bytes = kv_take_bytes(r, n);
    return bytes ? (kv_byte_text){(const char *)bytes, n} : (kv_byte_text){"", 0};
}

bool kv_byte_text_is(kv_byte_text text, const char *other) {
    return text.size == strlen(other) && (!text.size || memcmp(text.at, other, text.size) == 0);
}
