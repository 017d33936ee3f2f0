/* test_gguf_writer.c: what is written is read back the same, through the reader; misuse, a full disk and a
 * missing memory leave no file; sets of files that do not fit together are refused.
 *
 * ctest: single */
#include "base/memory.h"
#include "base/random.h"
#include "gguf/gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[256];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "%s/kvant-gguf-XXXXXX", P_tmpdir);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder); /* fails when a test left something behind */
}

static const char *path_of(const char *name) {
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void check_ok(kv_status status) {
    if (status) fail_msg("%s", kv_last_error());
}

static void expect_failure(kv_status status, const char *part) {
    assert_int_not_equal(status, KVANT_OK);
    if (!strstr(kv_last_error(), part))
        fail_msg("the message \"%s\" does not say \"%s\"", kv_last_error(), part);
}

static void expect_no_file(const char *name) {
    char part[512];
    snprintf(part, sizeof part, "%s.part", path_of(name));
    assert_int_not_equal(access(path_of(name), F_OK), 0);
    assert_int_not_equal(access(part, F_OK), 0);
}

/* ---- a file with a tensor of every dtype ---- */

enum { COLUMNS = 256, ROWS = 3 };

static size_t tensor_bytes(const kv_dtype *d) { return kv_dtype_bytes(d, COLUMNS * ROWS); }

static void fill(uint8_t *bytes, size_t n, uint64_t seed) {
    kv_random r;
    kv_random_init(&r, seed);
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)kv_random_u64(&r);
}

static void declare_all(kv_gguf_writer *w) {
    for (int32_t i = 0; i < kv_dtype_count(); i++) {
        const kv_dtype *d = kv_dtype_at(i);
        if (d->gguf_id >= 0)
            check_ok(kv_gguf_declare_tensor(w, d->name, d, 2, (const int64_t[]){COLUMNS, ROWS}));
    }
}

/* All data in pieces of `piece` bytes, which need not end where tensors do. */
static void write_all(kv_gguf_writer *w, size_t piece) {
    size_t n = 0;
    static uint8_t data[1 << 16];
    for (int32_t i = 0; i < kv_dtype_count(); i++) {
        const kv_dtype *d = kv_dtype_at(i);
        if (d->gguf_id < 0) continue;
        assert_true(n + tensor_bytes(d) <= sizeof data);
        fill(data + n, tensor_bytes(d), (uint64_t)i);
        n += tensor_bytes(d);
    }
    for (size_t at = 0; at < n; at += piece)
        check_ok(kv_gguf_write_data(w, data + at, n - at < piece ? n - at : piece));
}

static void check_all(const char *name) {
    kv_gguf *g;
    uint8_t expected[COLUMNS * ROWS * 4];
    check_ok(kv_gguf_open(&g, path_of(name)));
    for (int32_t i = 0; i < kv_dtype_count(); i++) {
        const kv_dtype *d = kv_dtype_at(i);
        const kv_gguf_tensor *t = kv_gguf_find_tensor(g, d->name);
        assert_int_equal(t != NULL, d->gguf_id >= 0);
        if (!t) continue;
        assert_ptr_equal(t->dtype, d);
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->bytes, tensor_bytes(d));
        fill(expected, t->bytes, (uint64_t)i);
        assert_memory_equal(t->data, expected, t->bytes);
    }
    kv_gguf_close(g);
}

static void test_tensors(void **state) {
    (void)state;
    static const size_t pieces[] = {1 << 16, 1000, 7};
    for (size_t i = 0; i < 3; i++) {
        kv_gguf_writer *w;
        check_ok(kv_gguf_writer_open(&w, path_of("all.gguf")));
        check_ok(kv_gguf_write_string(w, "general.architecture", "llama"));
        declare_all(w);
        write_all(w, pieces[i]);
        check_ok(kv_gguf_writer_commit(w));
        kv_gguf_writer_close(w);
        check_all("all.gguf");
        unlink(path_of("all.gguf"));
    }
}

/* ---- values ---- */

static void test_values(void **state) {
    (void)state;
    kv_gguf_writer *w;
    kv_gguf *g;
    kv_gguf_string s;
    int32_t i = 0;
    float x = 0;
    check_ok(kv_gguf_writer_open(&w, path_of("values.gguf")));
    check_ok(kv_gguf_write_u32(w, "a.count", 12));
    check_ok(kv_gguf_write_f32(w, "a.eps", 1e-5f));
    check_ok(kv_gguf_write_string(w, "a.name", "x"));
    check_ok(kv_gguf_write_string(w, "a.empty", ""));
    check_ok(kv_gguf_writer_commit(w));
    kv_gguf_writer_close(w);
    check_ok(kv_gguf_open(&g, path_of("values.gguf")));
    assert_int_equal(kv_gguf_n_values(g), 4);
    assert_int_equal(kv_gguf_n_tensors(g), 0);
    check_ok(kv_gguf_get_i32(g, "a.count", KV_GGUF_REQUIRED, &i));
    check_ok(kv_gguf_get_f32(g, "a.eps", KV_GGUF_REQUIRED, &x));
    check_ok(kv_gguf_get_string(g, "a.empty", KV_GGUF_REQUIRED, &s));
    assert_true(i == 12 && x == 1e-5f && s.size == 0);
    kv_gguf_close(g);
    unlink(path_of("values.gguf"));
}

/* Reading a file and writing all of it gives the same values and tensors (here a file of gguf-py, alignment
 * 64). */
static void test_copy(void **state) {
    (void)state;
    kv_gguf *from, *to;
    kv_gguf_writer *w;
    check_ok(kv_gguf_open(&from, KVANT_SOURCE_DIR "/tests/data/gguf_py.gguf"));
    check_ok(kv_gguf_writer_open(&w, path_of("copy.gguf")));
    for (int64_t i = 0; i < kv_gguf_n_values(from); i++)
        check_ok(kv_gguf_write_value(w, kv_gguf_value_at(from, i)));
    for (int64_t i = 0; i < kv_gguf_n_tensors(from); i++) {
        const kv_gguf_tensor *t = kv_gguf_tensor_at(from, i);
        check_ok(kv_gguf_declare_tensor(w, t->name, t->dtype, t->n_dims, t->dims));
    }
    for (int64_t i = 0; i < kv_gguf_n_tensors(from); i++)
        check_ok(kv_gguf_write_data(w, kv_gguf_tensor_at(from, i)->data, kv_gguf_tensor_at(from, i)->bytes));
    check_ok(kv_gguf_writer_commit(w));
    kv_gguf_writer_close(w);

    check_ok(kv_gguf_open(&to, path_of("copy.gguf")));
    assert_int_equal(kv_gguf_n_values(to), kv_gguf_n_values(from));
    for (int64_t i = 0; i < kv_gguf_n_values(from); i++) {
        const kv_gguf_value *a = kv_gguf_value_at(from, i), *b = kv_gguf_value_at(to, i);
        assert_string_equal(a->key, b->key);
        assert_true(a->type == b->type && a->element == b->element && a->count == b->count &&
                    a->bytes == b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    assert_int_equal(kv_gguf_n_tensors(to), kv_gguf_n_tensors(from));
    for (int64_t i = 0; i < kv_gguf_n_tensors(from); i++) {
        const kv_gguf_tensor *a = kv_gguf_tensor_at(from, i), *b = kv_gguf_tensor_at(to, i);
        assert_string_equal(a->name, b->name);
        assert_memory_equal(a->dims, b->dims, sizeof a->dims);
        assert_memory_equal(a->data, b->data, a->bytes);
        assert_int_equal((uintptr_t)b->data % 64, 0);
    }
    kv_gguf_close(from);
    kv_gguf_close(to);
    unlink(path_of("copy.gguf"));
}

/* ---- misuse ---- */

static const int64_t vector_dims[] = {8};

static void expect_refused(const char *message, kv_status (*call)(kv_gguf_writer *)) {
    kv_gguf_writer *w;
    check_ok(kv_gguf_writer_open(&w, path_of("bad.gguf")));
    check_ok(kv_gguf_write_u32(w, "a.count", 1));
    check_ok(kv_gguf_declare_tensor(w, "t", &kv_dtype_f32, 1, vector_dims));
    expect_failure(call(w), message);
    assert_int_not_equal(kv_gguf_writer_commit(w), KVANT_OK); /* and nothing can be committed after it */
    kv_gguf_writer_close(w);
    expect_no_file("bad.gguf");
}

static kv_status key_twice(kv_gguf_writer *w) { return kv_gguf_write_u32(w, "a.count", 2); }

static kv_status tensor_twice(kv_gguf_writer *w) {
    return kv_gguf_declare_tensor(w, "t", &kv_dtype_f32, 1, vector_dims);
}

static kv_status too_little(kv_gguf_writer *w) {
    static const uint8_t data[31];
    check_ok(kv_gguf_write_data(w, data, sizeof data));
    return kv_gguf_writer_commit(w);
}

static kv_status too_much(kv_gguf_writer *w) {
    static const uint8_t data[33];
    return kv_gguf_write_data(w, data, sizeof data);
}

static kv_status key_after_data(kv_gguf_writer *w) {
    check_ok(kv_gguf_write_data(w, "", 1));
    return kv_gguf_write_u32(w, "b", 1);
}

static kv_status half_a_block(kv_gguf_writer *w) {
    return kv_gguf_declare_tensor(w, "half", &kv_dtype_q4_k, 1, (const int64_t[]){128});
}

static kv_status zero_rows(kv_gguf_writer *w) {
    return kv_gguf_declare_tensor(w, "zero", &kv_dtype_f32, 2, (const int64_t[]){8, 0});
}

static kv_status five_dims(kv_gguf_writer *w) {
    return kv_gguf_declare_tensor(w, "five", &kv_dtype_f32, 5, (const int64_t[]){1, 1, 1, 1, 1});
}

static kv_status never_in_files(kv_gguf_writer *w) {
    return kv_gguf_declare_tensor(w, "a", &kv_dtype_a8, 1, (const int64_t[]){32});
}

static kv_status empty_key(kv_gguf_writer *w) { return kv_gguf_write_u32(w, "", 1); }

static kv_status late_alignment(kv_gguf_writer *w) { return kv_gguf_write_u32(w, "general.alignment", 64); }

static void test_misuse(void **state) {
    (void)state;
    expect_refused("a.count: written twice", key_twice);
    expect_refused("t: written twice", tensor_twice);
    expect_refused("tensor t: 31 of its 32 bytes written", too_little);
    expect_refused("1 bytes more than the declared tensors have", too_much);
    expect_refused("before the first data", key_after_data);
    expect_refused("tensor half: 128 columns, not a multiple of 256 (q4_k block)", half_a_block);
    expect_refused("tensor zero: dimension 1 is 0", zero_rows);
    expect_refused("5 dimensions", five_dims);
    expect_refused("GGUF has no type a8", never_in_files);
    expect_refused("key name is empty", empty_key);
    expect_refused("general.alignment comes before", late_alignment);
}

static void test_alignment(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 1, 4, 24, 1u << 31};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kv_gguf_writer *w;
        check_ok(kv_gguf_writer_open(&w, path_of("align.gguf")));
        expect_failure(kv_gguf_write_u32(w, "general.alignment", bad[i]), "not a power of two from 8");
        kv_gguf_writer_close(w);
        expect_no_file("align.gguf");
    }
}

static void test_unwritable(void **state) {
    (void)state;
    kv_gguf_writer *w;
    expect_failure(kv_gguf_writer_open(&w, path_of("no/such/folder.gguf")), "cannot write");
    kv_gguf_writer_close(NULL);
    kv_gguf_close(NULL);
}

/* The disk is full: /dev/full behind the name of the unfinished file, for little data (the failure comes
 * late, with the flush) and for much. */
static void test_full_disk(void **state) {
    (void)state;
    static const int64_t sizes[] = {8, 1 << 20};
    struct stat info;
    if (stat("/dev/full", &info) || !S_ISCHR(info.st_mode)) {
        print_message("skipped: no /dev/full\n");
        skip();
    }
    for (int i = 0; i < 2; i++) {
        kv_gguf_writer *w;
        size_t n = (size_t)sizes[i] * 4;
        uint8_t *data = calloc(1, n);
        assert_int_equal(symlink("/dev/full", path_of("full.gguf.part")), 0);
        check_ok(kv_gguf_writer_open(&w, path_of("full.gguf")));
        check_ok(kv_gguf_declare_tensor(w, "t", &kv_dtype_f32, 1, sizes + i));
        kv_status written = kv_gguf_write_data(w, data, n);
        if (i == 1) assert_int_equal(written, KVANT_IO);
        assert_int_equal(kv_gguf_writer_commit(w), KVANT_IO);
        expect_failure(KVANT_IO, "No space left");
        kv_gguf_writer_close(w);
        expect_no_file("full.gguf");
        free(data);
    }
}

static void test_no_memory(void **state) {
    (void)state;
    kv_status status = KVANT_NO_MEMORY;
    int64_t n = 0;
    for (; status == KVANT_NO_MEMORY; n++) {
        kv_gguf_writer *w = NULL;
        kv_alloc_fail_after(n);
        status = kv_gguf_writer_open(&w, path_of("memory.gguf"));
        if (!status) status = kv_gguf_write_string(w, "a.name", "x");
        if (!status) status = kv_gguf_declare_tensor(w, "t", &kv_dtype_f32, 1, vector_dims);
        if (!status) status = kv_gguf_write_data(w, "0123456789abcdef0123456789abcdef", 32);
        if (!status) status = kv_gguf_writer_commit(w);
        kv_alloc_fail_after(-1);
        kv_gguf_writer_close(w);
        if (status) expect_no_file("memory.gguf");
    }
    assert_int_equal(status, KVANT_OK);
    assert_true(n > 5);
    unlink(path_of("memory.gguf"));
}

/* ---- sets ---- */

/* One file of a set; a negative number leaves its key out. */
static void write_part(const char *name, const char *tensor, int32_t no, int32_t count, int32_t n_tensors) {
    kv_gguf_writer *w;
    check_ok(kv_gguf_writer_open(&w, path_of(name)));
    if (no >= 0) check_ok(kv_gguf_write_u32(w, "split.no", (uint32_t)no));
    if (count >= 0) check_ok(kv_gguf_write_u32(w, "split.count", (uint32_t)count));
    if (n_tensors >= 0) check_ok(kv_gguf_write_u32(w, "split.tensors.count", (uint32_t)n_tensors));
    check_ok(kv_gguf_declare_tensor(w, tensor, &kv_dtype_f32, 1, vector_dims));
    check_ok(kv_gguf_write_data(w, "0123456789abcdef0123456789abcdef", 32));
    check_ok(kv_gguf_writer_commit(w));
    kv_gguf_writer_close(w);
}

static void test_sets(void **state) {
    (void)state;
    const char *first = "m-00001-of-00002.gguf", *second = "m-00002-of-00002.gguf";
    kv_gguf *g;
    write_part(first, "a", 0, 2, 2);
    expect_failure(kv_gguf_open(&g, path_of(first)), "m-00002-of-00002.gguf: cannot open");
    write_part(second, "b", 1, 2, 2);
    check_ok(kv_gguf_open(&g, path_of(first)));
    assert_int_equal(kv_gguf_n_tensors(g), 2);
    assert_non_null(kv_gguf_find_tensor(g, "b"));
    kv_gguf_close(g);
    expect_failure(kv_gguf_open(&g, path_of(second)), "file 2 of a set of 2, open the first one");
    write_part(second, "a", 1, 2, 2);
    expect_failure(kv_gguf_open(&g, path_of(first)), "tensor a: there twice");
    write_part(second, "b", 0, 2, 2);
    expect_failure(kv_gguf_open(&g, path_of(first)), "it says file 1 of 2, not 2 of 2");
    write_part(second, "b", 1, 3, 2);
    expect_failure(kv_gguf_open(&g, path_of(first)), "it says file 2 of 3, not 2 of 2");
    write_part(second, "b", -1, -1, -1);
    expect_failure(kv_gguf_open(&g, path_of(first)), "it says file 1 of 1, not 2 of 2");
    write_part(second, "b", 1, 2, 2);
    write_part(first, "a", 0, 2, 3);
    expect_failure(kv_gguf_open(&g, path_of(first)), "the set has 2 tensors, split.tensors.count says 3");
    write_part(first, "a", 0, 2, -1);
    expect_failure(kv_gguf_open(&g, path_of(first)), "split.tensors.count");
    write_part("odd.gguf", "a", 0, 2, 2);
    expect_failure(kv_gguf_open(&g, path_of("odd.gguf")), "its name must end in -00001-of-00002.gguf");
    write_part("odd.gguf", "a", 0, 70000, 2);
    expect_failure(kv_gguf_open(&g, path_of("odd.gguf")), "key split.count: 70000, not from 0 to 65535");
    unlink(path_of(first));
    unlink(path_of(second));
    unlink(path_of("odd.gguf"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),   cmocka_unit_test(test_values),    cmocka_unit_test(test_copy),
        cmocka_unit_test(test_misuse),    cmocka_unit_test(test_alignment), cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_full_disk), cmocka_unit_test(test_no_memory), cmocka_unit_test(test_sets),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
