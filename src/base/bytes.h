/* bytes.h: numbers and strings as bytes of a file, little endian on every machine: a buffer that grows, and a
 * cursor that never passes the end of what it reads. Both remember their first failure, so that a run of
 * calls needs one check at its end. */
#pragma once

#include "base/memory.h"
#include "base/status.h"

typedef struct kv_byte_writer {
    KV_VEC(uint8_t) bytes; /* owned: kv_vec_clear */
    bool failed;           /* out of memory */
} kv_byte_writer;

void kv_put_bytes(kv_byte_writer *w, const void *bytes, size_t n);
void kv_put_u32(kv_byte_writer *w, uint32_t value);
void kv_put_u64(kv_byte_writer *w, uint64_t value);
void kv_put_f32(kv_byte_writer *w, float value);
void kv_put_f64(kv_byte_writer *w, double value);
/* A u32 with the number of bytes, then the bytes. */
void kv_put_text(kv_byte_writer *w, const char *text);

typedef struct kv_byte_reader {
    const uint8_t *at, *end; /* borrowed */
    bool failed;             /* asked for more than there is: everything reads as zero from then on */
} kv_byte_reader;

static inline size_t kv_bytes_left(const kv_byte_reader *r) { return (size_t)(r->end - r->at); }
/* The next n bytes, borrowed; NULL if there are fewer. */
const uint8_t *kv_take_bytes(kv_byte_reader *r, size_t n);
uint32_t kv_take_u32(kv_byte_reader *r);
uint64_t kv_take_u64(kv_byte_reader *r);
float kv_take_f32(kv_byte_reader *r);
double kv_take_f64(kv_byte_reader *r);
/* As kv_put_text wrote it: the bytes, not NUL-terminated, borrowed. */
typedef struct kv_byte_text {
    const char *at;
    size_t size;
} kv_byte_text;
kv_byte_text kv_take_text(kv_byte_reader *r);
bool kv_byte_text_is(kv_byte_text text, const char *other);
