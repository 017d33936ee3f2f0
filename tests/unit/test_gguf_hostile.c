/* test_gguf_hostile.c: files that want to do harm (field reports F30 to F32). Each is read from a heap block
 * of exactly its size, so that a sanitizer sees every step beyond; each failure must leave a message of
 * printable characters; and what is accepted must bear to be read in full.
 *
 * ctest: single */
#include "base/memory.h"
#include "base/random.h"
#include "gguf/gguf.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

/* ---- bytes ---- */

typedef struct bytes {
    uint8_t at[64 * 1024];
    size_t count;
} bytes;

static void put(bytes *b, const void *data, size_t n) {
    assert_true(n <= sizeof b->at - b->count);
    memcpy(b->at + b->count, data, n);
    b->count += n;
}

static void put_u32(bytes *b, uint32_t v) { put(b, &v, sizeof v); }

static void put_u64(bytes *b, uint64_t v) { put(b, &v, sizeof v); }

static void put_string(bytes *b, const char *s) {
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

static void put_zeros(bytes *b, size_t n) {
    static const uint8_t zeros[4096];
    put(b, zeros, n);
}

static void put_header(bytes *b, uint64_t n_tensors, uint64_t n_values) {
    b->count = 0;
    put(b, "GGUF", 4);
    put_u32(b, 3);
    put_u64(b, n_tensors);
    put_u64(b, n_values);
}

static void put_tensor(bytes *b, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                       uint64_t offset) {
    put_string(b, name);
    put_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 16; i++) put_u64(b, dims[i]);
    put_u32(b, type);
    put_u64(b, offset);
}

static void put_data(bytes *b, size_t alignment, size_t n) {
    while (b->count % alignment) put_zeros(b, 1);
    put_zeros(b, n);
}

/* ---- verdicts ---- */

/* Asks every getter for every key, and touches the ends of every tensor. */
static void read_everything(const kv_gguf *g) {
    for (int64_t k = 0; k < kv_gguf_n_values(g); k++) {
        const char *key = kv_gguf_value_at(g, k)->key;
        int32_t i, *ints;
        float x, *floats;
        bool b;
        kv_gguf_string s, *strings;
        size_t n;
        assert_ptr_equal(kv_gguf_find(g, key), kv_gguf_value_at(g, k));
        kv_gguf_get_i32(g, key, KV_GGUF_REQUIRED, &i);
        kv_gguf_get_f32(g, key, KV_GGUF_REQUIRED, &x);
        kv_gguf_get_bool(g, key, KV_GGUF_REQUIRED, &b);
        kv_gguf_get_string(g, key, KV_GGUF_REQUIRED, &s);
        if (!kv_gguf_get_i32_array(g, key, KV_GGUF_REQUIRED, &ints, &n)) kv_free(ints);
        if (!kv_gguf_get_f32_array(g, key, KV_GGUF_REQUIRED, &floats, &n)) kv_free(floats);
        if (!kv_gguf_get_string_array(g, key, KV_GGUF_REQUIRED, &strings, &n)) kv_free(strings);
    }
    for (int64_t i = 0; i < kv_gguf_n_tensors(g); i++) {
        const kv_gguf_tensor *t = kv_gguf_tensor_at(g, i);
        volatile uint8_t touched = (uint8_t)(t->data[0] + t->data[t->bytes - 1]);
        (void)touched;
        assert_ptr_equal(kv_gguf_find_tensor(g, t->name), t);
        kv_gguf_release_tensor(g, t);
    }
}

/* Opens a copy, reads all of it. KVANT_OK, or the failure with its message checked. */
static kv_status verdict(const uint8_t *data, size_t size) {
    kv_gguf *g = NULL;
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    kv_fail(KVANT_OK, "no message");
    kv_status status = kv_gguf_open_memory(&g, copy, size);
    if (status) {
        const char *message = kv_last_error();
        assert_null(g);
        assert_string_not_equal(message, "no message");
        assert_true(strlen(message) > 10);
        for (const char *p = message; *p; p++)
            if (!isprint((unsigned char)*p)) fail_msg("byte %02x in the message", (unsigned char)*p);
    } else {
        read_everything(g);
    }
    kv_gguf_close(g);
    free(copy);
    return status;
}

static void expect_refused(const bytes *b, const char *part) {
    if (!verdict(b->at, b->count)) fail_msg("accepted, not refused with \"%s\"", part);
    if (!strstr(kv_last_error(), part))
        fail_msg("the message \"%s\" does not say \"%s\"", kv_last_error(), part);
}

static void expect_accepted(const bytes *b) {
    if (verdict(b->at, b->count)) fail_msg("%s", kv_last_error());
}

/* ---- header ---- */

static void test_header(void **state) {
    (void)state;
    static bytes b;
    put_header(&b, 0, 0);
    expect_accepted(&b);
    b.at[4] = 2;
    expect_accepted(&b);
    static const struct {
        uint32_t version;
        const char *message;
    } versions[] = {{0, "version 0"},           {1, "version 1 is not supported"},
                    {4, "version 4"},           {0x03000000, "big-endian"},
                    {0x02000000, "big-endian"}, {UINT32_MAX, "version 4294967295"}};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        memcpy(b.at + 4, &versions[i].version, 4);
        expect_refused(&b, versions[i].message);
    }
    b.count = 0;
    expect_refused(&b, "the file is empty");
    put(&b, "GGU", 3);
    expect_refused(&b, "not a GGUF file: it starts with bytes 47 47 55 00");
    put_header(&b, 0, 0);
    b.at[0] = 'g';
    expect_refused(&b, "not a GGUF file");
}

static void test_counts(void **state) {
    (void)state;
    static bytes b;
    static const uint64_t counts[] = {
        1, 1u << 20, UINT64_C(1) << 31, UINT64_C(1) << 60, UINT64_C(1) << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        put_header(&b, counts[i], 0);
        expect_refused(&b, "number of tensors");
        put_header(&b, 0, counts[i]);
        expect_refused(&b, "number of keys");
    }
}

/* ---- F30: dimensions, types, alignment ---- */

static void test_dims(void **state) {
    (void)state;
    static bytes b;
    static const uint64_t hostile[] = {0,
                                       1,
                                       UINT64_C(1) << 31,
                                       UINT64_MAX,
                                       (UINT64_C(1) << 40) + 1,
                                       (UINT64_C(1) << 42) + 1,
                                       UINT64_C(1) << 62,
                                       INT64_MAX,
                                       UINT64_C(1) << 63};
    enum { IN_RANGE = 2 }; /* but the file is too short for it */
    char message[96];
    for (uint32_t n_dims = 1; n_dims <= 4; n_dims++)
        for (uint32_t place = 0; place < n_dims; place++)
            for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
                uint64_t dims[4] = {32, 1, 1, 1};
                dims[place] = hostile[i];
                put_header(&b, 1, 0);
                put_tensor(&b, "t", n_dims, dims, 0, 0);
                put_data(&b, 32, 128);
                snprintf(message, sizeof message, "tensor t: dimension %u is %lld, not from 1 to 2^40", place,
                         (long long)hostile[i]);
                if (hostile[i] == 1)
                    expect_accepted(&b);
                else
                    expect_refused(&b, i == IN_RANGE ? "tensor t: " : message);
            }
    /* each in range, the product far out of it; the second wraps to 0 before the last factor */
    static const uint64_t products[][4] = {{1u << 20, 1u << 20, 1u << 20, 1u << 20},
                                           {UINT64_C(1) << 40, UINT64_C(1) << 40, 1, 1},
                                           {UINT64_C(1) << 40, 1u << 23, 1, 1}};
    for (size_t i = 0; i < 3; i++) {
        put_header(&b, 1, 0);
        put_tensor(&b, "t", 4, products[i], 0, 0);
        put_data(&b, 32, 128);
        expect_refused(&b, "tensor t: more than 2^63 bytes");
    }
    put_header(&b, 1, 0);
    put_tensor(&b, "blk.3.attn_k.weight", 2, (const uint64_t[]){96 + 1, 2}, 8, 0);
    put_data(&b, 32, 1024);
    expect_refused(&b, "tensor blk.3.attn_k.weight: 97 columns, not a multiple of 32 (q8_0 block)");
}

static void test_dim_counts(void **state) {
    (void)state;
    static bytes b;
    static const uint32_t counts[] = {0, 5, 9, 1u << 31, UINT32_MAX};
    static const uint64_t dims[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        put_header(&b, 1, 0);
        put_tensor(&b, "t", counts[i], dims, 0, 0);
        put_data(&b, 32, 128);
        expect_refused(&b, "dimensions, not from 1 to 4");
    }
}

static void test_types(void **state) {
    (void)state;
    static bytes b;
    for (int32_t type = -1; type < 256; type++) {
        char message[64];
        snprintf(message, sizeof message, "tensor t: type %u is not supported", (uint32_t)type);
        put_header(&b, 1, 0);
        put_tensor(&b, "t", 1, (const uint64_t[]){256}, (uint32_t)type, 0);
        put_data(&b, 32, 1024);
        if (kv_dtype_by_gguf_id(type))
            expect_accepted(&b);
        else
            expect_refused(&b, message);
    }
}

static void put_aligned_file(bytes *b, uint32_t type, uint64_t alignment, size_t data_alignment) {
    put_header(b, 1, 1);
    put_string(b, "general.alignment");
    put_u32(b, type);
    if (type == KV_GGUF_U64)
        put_u64(b, alignment);
    else
        put_u32(b, (uint32_t)alignment);
    put_tensor(b, "t", 1, (const uint64_t[]){8}, 0, 0);
    put_data(b, data_alignment, 32);
}

static void test_alignments(void **state) {
    (void)state;
    static bytes b;
    static const uint32_t bad[] = {0, 1, 3, 4, 12, 33, (1u << 24) + 1, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_aligned_file(&b, KV_GGUF_U32, bad[i], 32);
        expect_refused(&b, "key general.alignment: ");
    }
    for (uint32_t alignment = 8; alignment <= 4096; alignment *= 2) {
        put_aligned_file(&b, KV_GGUF_U32, alignment, alignment);
        expect_accepted(&b);
        b.count--;
        expect_refused(&b, "tensor t: 32 bytes at offset 0");
    }
    put_aligned_file(&b, KV_GGUF_U64, 64, 64);
    expect_accepted(&b);
    put_aligned_file(&b, KV_GGUF_U64, UINT64_C(1) << 32, 64);
    expect_refused(&b, "key general.alignment: 4294967296");
    put_aligned_file(&b, KV_GGUF_F32, 0x42000000, 32);
    expect_refused(&b, "key general.alignment: f32, not an integer");
}

/* ---- F31: offsets, truncation ---- */

static void put_two_tensors(bytes *b, uint64_t first, uint64_t second) {
    put_header(b, 2, 0);
    put_tensor(b, "a", 1, (const uint64_t[]){32}, 0, first); /* 128 bytes each */
    put_tensor(b, "b", 1, (const uint64_t[]){32}, 0, second);
    put_data(b, 32, 512);
}

static void test_offsets(void **state) {
    (void)state;
    static bytes b;
    static const struct {
        uint64_t first, second;
        const char *message; /* NULL: accepted */
    } cases[] = {{0, 128, NULL},
                 {128, 0, NULL},
                 {0, 384, NULL},
                 {384, 128, NULL},
                 {0, UINT64_MAX - 31,
                  "tensor b: 128 bytes at offset 18446744073709551584 of the data, the file has 512"},
                 {0, 1, "tensor b: offset 1, not a multiple of the alignment 32"},
                 {0, 144, "not a multiple of the alignment"},
                 {0, 511, "not a multiple of the alignment"},
                 {0, 480, "tensor b: 128 bytes at offset 480"},
                 {0, 512, "tensor b: 128 bytes at offset 512"},
                 {UINT64_C(1) << 63, 0, "tensor a: 128 bytes at offset 9223372036854775808"},
                 {UINT64_MAX - 127, 0, "tensor a: 128 bytes at offset 18446744073709551488"},
                 {0, 0, "lies inside tensor"},
                 {0, 96, "tensor b: offset 96 lies inside tensor a"},
                 {96, 0, "tensor a: offset 96 lies inside tensor b"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_two_tensors(&b, cases[i].first, cases[i].second);
        if (cases[i].message)
            expect_refused(&b, cases[i].message);
        else
            expect_accepted(&b);
    }
}

/* A file with a key of every type, arrays of every type and three tensors, that ends with its last tensor. */
static void put_fixture(bytes *b) {
    static const uint8_t value[8] = {1};
    put_header(b, 3, 3 + KV_GGUF_F64 * 2);
    put_string(b, "general.architecture");
    put_u32(b, KV_GGUF_STRING);
    put_string(b, "llama");
    put_string(b, "general.alignment");
    put_u32(b, KV_GGUF_U32);
    put_u32(b, 32);
    put_string(b, "tokenizer.ggml.tokens");
    put_u32(b, KV_GGUF_ARRAY);
    put_u32(b, KV_GGUF_STRING);
    put_u64(b, 100);
    for (int i = 0; i < 100; i++) put_string(b, i % 7 ? "token" : "");
    for (uint32_t type = 0; type <= KV_GGUF_F64; type++) {
        static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
        char key[32];
        if (type == KV_GGUF_ARRAY) continue;
        snprintf(key, sizeof key, "one.%u", type);
        put_string(b, key);
        put_u32(b, type);
        if (type == KV_GGUF_STRING)
            put_string(b, "text");
        else
            put(b, value, sizes[type]);
        snprintf(key, sizeof key, "many.%u", type);
        put_string(b, key);
        put_u32(b, KV_GGUF_ARRAY);
        put_u32(b, type);
        put_u64(b, 3);
        for (int i = 0; i < 3; i++)
            if (type == KV_GGUF_STRING)
                put_string(b, "text");
            else
                put(b, value, sizes[type]);
    }
    put_tensor(b, "token_embd.weight", 2, (const uint64_t[]){32, 32}, 8, 0); /* 1088 bytes */
    put_tensor(b, "blk.0.norm", 1, (const uint64_t[]){32}, 0, 1088);         /* 128 */
    put_tensor(b, "output.weight", 2, (const uint64_t[]){256, 2}, 0, 1216);  /* 2048 */
    put_data(b, 32, 1216 + 2048);
}

static void test_truncation(void **state) {
    (void)state;
    static bytes b;
    put_fixture(&b);
    expect_accepted(&b);
    for (size_t size = 0; size < b.count; size++)
        if (!verdict(b.at, size)) fail_msg("cut to %zu of %zu bytes, accepted", size, b.count);
}

/* ---- F32: keys ---- */

static void test_strings(void **state) {
    (void)state;
    static bytes b;
    static const uint64_t lengths[] = {1u << 20, UINT64_C(1) << 32, UINT64_C(1) << 63, UINT64_MAX,
                                       UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        put_header(&b, 0, 1); /* a key's name */
        put_u64(&b, lengths[i]);
        put_zeros(&b, 100);
        expect_refused(&b, "the file ends inside the name of a key");
        put_header(&b, 0, 1); /* a value */
        put_string(&b, "a");
        put_u32(&b, KV_GGUF_STRING);
        put_u64(&b, lengths[i]);
        put_zeros(&b, 100);
        expect_refused(&b, "the file ends inside a: ");
        put_header(&b, 1, 0); /* a tensor's name */
        put_u64(&b, lengths[i]);
        put_zeros(&b, 100);
        expect_refused(&b, "the file ends inside the name of a tensor");
    }
}

static void put_key(bytes *b, const char *name, size_t size) {
    put_header(b, 0, 1);
    put_u64(b, size);
    put(b, name, size);
    put_u32(b, KV_GGUF_U32);
    put_u32(b, 1);
}

static void test_names(void **state) {
    (void)state;
    static bytes b;
    static const char nul[] = "a\0b", escape[] = "a\x1b[2J\n\xff";
    char long_name[300];
    memset(long_name, 'x', sizeof long_name);
    put_key(&b, "", 0);
    put_zeros(&b, 1); /* room enough for one key */
    expect_refused(&b, "key name is empty");
    put_key(&b, nul, 3);
    expect_refused(&b, "key name with a NUL byte: a?b");
    put_key(&b, escape, sizeof escape - 1);
    b.at[24 + 8 + sizeof escape - 1] = 99; /* the type; the name in the message is harmless */
    expect_refused(&b, "key a?[2J??: value type 99");
    put_key(&b, long_name, sizeof long_name);
    expect_accepted(&b);
    put_header(&b, 1, 0);
    put_u64(&b, sizeof long_name);
    put(&b, long_name, sizeof long_name);
    put_zeros(&b, 64);
    expect_refused(&b, "tensor name of 300 bytes, more than 255: xxxx");
    put_header(&b, 1, 0);
    put_tensor(&b, "", 1, (const uint64_t[]){8}, 0, 0);
    put_data(&b, 32, 32);
    expect_refused(&b, "tensor name is empty");
}

static void test_duplicates(void **state) {
    (void)state;
    static bytes b;
    put_header(&b, 0, 3);
    for (int i = 0; i < 3; i++) {
        put_string(&b, i == 1 ? "b" : "a.key");
        put_u32(&b, KV_GGUF_U32);
        put_u32(&b, 1);
    }
    expect_refused(&b, "key a.key: there twice");
    put_header(&b, 2, 0);
    put_tensor(&b, "t", 1, (const uint64_t[]){8}, 0, 0);
    put_tensor(&b, "t", 1, (const uint64_t[]){8}, 0, 32);
    put_data(&b, 32, 64);
    expect_refused(&b, "tensor t: there twice");
}

static void put_array(bytes *b, uint32_t element, uint64_t count) {
    put_header(b, 0, 1);
    put_string(b, "a");
    put_u32(b, KV_GGUF_ARRAY);
    put_u32(b, element);
    put_u64(b, count);
}

static void test_arrays(void **state) {
    (void)state;
    static bytes b;
    static const uint64_t counts[] = {
        3, 1u << 20, UINT64_C(1) << 60, UINT64_C(1) << 61, UINT64_C(1) << 63, UINT64_MAX};
    for (uint32_t element = 0; element <= KV_GGUF_F64; element++) {
        put_array(&b, element, 0);
        if (element == KV_GGUF_ARRAY)
            expect_refused(&b, "an array of arrays");
        else
            expect_accepted(&b);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            put_array(&b, element, counts[i]);
            put_zeros(&b, 2);
            if (element != KV_GGUF_ARRAY) expect_refused(&b, "more than the 2 bytes left can hold");
        }
    }
    put_array(&b, KV_GGUF_STRING, 2); /* the lengths fit, the second text does not */
    put_string(&b, "ok");
    put_u64(&b, 9);
    put_zeros(&b, 8);
    expect_refused(&b, "the file ends inside a: 9 bytes at offset");
    put_array(&b, KV_GGUF_F64 + 1, 0);
    expect_refused(&b, "key a: value type 13");
    put_array(&b, KV_GGUF_BOOL, 2);
    put(&b, "\1\2", 2);
    expect_refused(&b, "key a: a bool of 2, not 0 or 1");
}

/* Every type number of every key, and every count of every array, made another: refused, or all of it
 * readable. */
static void test_retyped(void **state) {
    (void)state;
    static bytes b;
    kv_gguf *g;
    put_fixture(&b);
    assert_int_equal(kv_gguf_open_memory(&g, b.at, b.count), KVANT_OK);
    for (int64_t k = 0; k < kv_gguf_n_values(g); k++) {
        const kv_gguf_value *v = kv_gguf_value_at(g, k);
        bool array = v->type == KV_GGUF_ARRAY;
        size_t data = (size_t)(v->data - b.at), type = data - (array ? 16 : 4);
        static const int64_t counts[] = {0, 2, 4, 1 << 20, INT64_MIN, -1};
        for (uint32_t t = 0; t <= KV_GGUF_F64 + 1; t++) {
            static bytes changed;
            changed = b;
            memcpy(changed.at + type, &t, 4);
            verdict(changed.at, changed.count);
            changed = b;
            if (array) memcpy(changed.at + type + 4, &t, 4);
            verdict(changed.at, changed.count);
        }
        for (size_t i = 0; array && i < sizeof counts / sizeof *counts; i++) {
            static bytes changed;
            changed = b;
            memcpy(changed.at + type + 8, counts + i, 8);
            if (verdict(changed.at, changed.count) == KVANT_OK)
                fail_msg("array of %s, count %lld", v->key, (long long)counts[i]);
        }
    }
    kv_gguf_close(g);
}

/* Every byte of the head made another, and random bytes at random places. */
static void test_mutations(void **state) {
    (void)state;
    static bytes b, changed;
    kv_random r;
    kv_random_init(&r, 13);
    put_fixture(&b);
    size_t head = b.count - 1216 - 2048;
    for (size_t i = 0; i < head; i++)
        for (int how = 0; how < 4; how++) {
            changed = b;
            changed.at[i] = (uint8_t)(how == 0   ? 0
                                      : how == 1 ? 0xff
                                      : how == 2 ? changed.at[i] ^ 0x80
                                                 : changed.at[i] + 1);
            verdict(changed.at, changed.count);
        }
    for (int round = 0; round < 2000; round++) {
        changed = b;
        for (int n = 0; n < 4; n++) changed.at[kv_random_u64(&r) % head] = (uint8_t)kv_random_u64(&r);
        verdict(changed.at, changed.count);
    }
}

static void test_getters(void **state) {
    (void)state;
    static bytes b;
    static const uint32_t bad_floats[] = {0x7f800000, 0xff800000, 0x7fc00000};
    const double large = 1e300;
    kv_gguf *g;
    float x = 7, *floats = NULL;
    size_t n = 7;
    for (size_t i = 0; i < 4; i++) {
        put_header(&b, 0, 2);
        put_string(&b, "llama.eps");
        put_u32(&b, i < 3 ? KV_GGUF_F32 : KV_GGUF_F64);
        if (i < 3)
            put_u32(&b, bad_floats[i]);
        else
            put(&b, &large, 8);
        put_string(&b, "scores");
        put_u32(&b, KV_GGUF_ARRAY);
        put_u32(&b, i < 3 ? KV_GGUF_F32 : KV_GGUF_F64);
        put_u64(&b, 1);
        if (i < 3)
            put_u32(&b, bad_floats[i]);
        else
            put(&b, &large, 8);
        assert_int_equal(kv_gguf_open_memory(&g, b.at, b.count), KVANT_OK);
        assert_int_equal(kv_gguf_get_f32(g, "llama.eps", KV_GGUF_OPTIONAL, &x), KVANT_FORMAT);
        assert_non_null(strstr(kv_last_error(), "key llama.eps: "));
        assert_int_equal(kv_gguf_get_f32_array(g, "scores", KV_GGUF_OPTIONAL, &floats, &n), KVANT_FORMAT);
        assert_non_null(strstr(kv_last_error(), "item 0: key scores: "));
        assert_true(x == 7 && !floats && n == 7); /* as they were */
        kv_gguf_close(g);
    }
}

static void test_split_in_memory(void **state) {
    (void)state;
    static bytes b;
    put_header(&b, 0, 1);
    put_string(&b, "split.count");
    put_u32(&b, KV_GGUF_U32);
    put_u32(&b, 2);
    expect_refused(&b, "file 1 of a set of 2 cannot be read from memory");
}

/* ---- resources ---- */

static void test_no_memory(void **state) {
    (void)state;
    static bytes b;
    kv_status status = KVANT_NO_MEMORY;
    int64_t n = 0;
    put_fixture(&b);
    for (; status == KVANT_NO_MEMORY; n++) {
        kv_gguf *g = NULL;
        int32_t *ints = NULL;
        float *floats = NULL;
        kv_gguf_string *strings = NULL;
        size_t count;
        kv_alloc_fail_after(n);
        status = kv_gguf_open_memory(&g, b.at, b.count);
        if (!status) status = kv_gguf_get_i32_array(g, "many.5", KV_GGUF_REQUIRED, &ints, &count);
        if (!status) status = kv_gguf_get_f32_array(g, "many.6", KV_GGUF_REQUIRED, &floats, &count);
        if (!status) status = kv_gguf_get_string_array(g, "many.8", KV_GGUF_REQUIRED, &strings, &count);
        kv_alloc_fail_after(-1);
        if (status) assert_non_null(strstr(kv_last_error(), "out of memory"));
        kv_free(ints);
        kv_free(floats);
        kv_free(strings);
        kv_gguf_close(g);
    }
    assert_int_equal(status, KVANT_OK);
    assert_true(n > 8);
}

/* Promises of terabytes cost nothing: memory grows with what has been read. */
static void test_memory_bound(void **state) {
    (void)state;
    static bytes b;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    int64_t allocations = kv_alloc_count();
    put_header(&b, UINT64_C(1) << 40, UINT64_C(1) << 40);
    put_zeros(&b, 72);
    expect_refused(&b, "number of tensors");
    put_array(&b, KV_GGUF_STRING, UINT64_C(1) << 40);
    put_zeros(&b, 50);
    expect_refused(&b, "key a: 1099511627776 items");
    put_header(&b, 1, 0);
    put_tensor(&b, "t", 1, (const uint64_t[]){UINT64_C(1) << 40}, 0, 0);
    put_data(&b, 32, 32);
    expect_refused(&b, "tensor t: 4398046511104 bytes");
    assert_true(kv_alloc_count() - allocations < 30);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 16 * 1024); /* kB */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_bound),    cmocka_unit_test(test_header),
        cmocka_unit_test(test_counts),          cmocka_unit_test(test_dims),
        cmocka_unit_test(test_dim_counts),      cmocka_unit_test(test_types),
        cmocka_unit_test(test_alignments),      cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_truncation),      cmocka_unit_test(test_strings),
        cmocka_unit_test(test_names),           cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_arrays),          cmocka_unit_test(test_retyped),
        cmocka_unit_test(test_mutations),       cmocka_unit_test(test_getters),
        cmocka_unit_test(test_split_in_memory), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
