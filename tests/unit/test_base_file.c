/* test_base_file: files are mapped as they are, and written so that a failure at any point leaves neither a
 * half-written file nor its .part behind, and the old file intact. Also base/random and base/log.
 *
 * ctest: single */
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[128], part[140];

static int setup(void **state) {
    (void)state;
    strcpy(folder, "/tmp/kvant-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/out.bin", folder);
    snprintf(part, sizeof part, "%s.part", path);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    unlink(path);
    unlink(part);
    return rmdir(folder); /* fails where a test left anything else */
}

static bool exists(const char *name) { return access(name, F_OK) == 0; }

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_content(const void *bytes, size_t n) {
    kv_file_map map = {0};
    assert_int_equal(kv_file_map_open(&map, path), KVANT_OK);
    assert_int_equal(map.size, n);
    if (n) assert_memory_equal(map.data, bytes, n);
    kv_file_map_close(&map);
    assert_true(!map.data && !map.size);
}

static void test_map(void **state) {
    (void)state;
    write_file(path, "");
    assert_content(NULL, 0);
    write_file(path, "four");
    assert_content("four", 4);
}

static void test_map_failures(void **state) {
    (void)state;
    kv_file_map map = {0};
    assert_int_equal(kv_file_map_open(&map, path), KVANT_NOT_FOUND);
    assert_non_null(strstr(kv_last_error(), path));
    assert_int_equal(kv_file_map_open(&map, folder), KVANT_INVALID);
    assert_non_null(strstr(kv_last_error(), "not a regular file"));
    assert_int_equal(kv_file_map_open(&map, "/dev/null"), KVANT_INVALID);
    assert_true(!map.data && !map.size);
    kv_file_map_close(&map);
}

static void test_write(void **state) {
    (void)state;
    kv_file_writer *w = NULL;
    write_file(path, "old");
    assert_int_equal(kv_file_writer_open(&w, path), KVANT_OK);
    assert_int_equal(kv_file_write(w, "ab", 2), KVANT_OK);
    assert_int_equal(kv_file_write(w, NULL, 0), KVANT_OK);
    assert_int_equal(kv_file_write(w, "c\0d", 3), KVANT_OK);
    assert_int_equal(kv_file_offset(w), 5);
    assert_content("old", 3); /* nobody sees the new file before it is complete */
    assert_int_equal(kv_file_writer_commit(w), KVANT_OK);
    assert_content("abc\0d", 5);
    kv_file_writer_close(w);
    assert_content("abc\0d", 5);
    assert_false(exists(part));
}

static void test_close_without_commit(void **state) {
    (void)state;
    kv_file_writer *w = NULL;
    write_file(path, "old");
    assert_int_equal(kv_file_writer_open(&w, path), KVANT_OK);
    assert_int_equal(kv_file_write(w, "new", 3), KVANT_OK);
    kv_file_writer_close(w);
    assert_content("old", 3);
    assert_false(exists(part));
    kv_file_writer_close(NULL);
}

static void test_open_failures(void **state) {
    (void)state;
    kv_file_writer *w = NULL;
    char nowhere[160];
    snprintf(nowhere, sizeof nowhere, "%s/none/out.bin", folder);
    assert_int_equal(kv_file_writer_open(&w, nowhere), KVANT_NOT_FOUND);
    assert_non_null(strstr(kv_last_error(), nowhere));
    for (int64_t n = 0; n < 3; n++) {
        kv_alloc_fail_after(n);
        kv_status status = kv_file_writer_open(&w, path);
        kv_alloc_fail_after(-1);
        assert_int_equal(status, KVANT_NO_MEMORY);
        assert_false(exists(part));
    }
    assert_null(w);
}

/* Writes 1 MiB in small pieces; the full disk may show in a write or only in the commit. */
static kv_status write_much(void) {
    kv_file_writer *w = NULL;
    char block[1000] = {0};
    kv_status status = kv_file_writer_open(&w, path);
    for (int i = 0; i < 1048 && !status; i++) status = kv_file_write(w, block, sizeof block);
    if (!status) status = kv_file_writer_commit(w);
    kv_file_writer_close(w);
    return status;
}

static void test_full_disk(void **state) {
    (void)state;
    write_file(path, "old");
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    limit = before;
    for (rlim_t bytes = 0; bytes < 1048000; bytes += 131071) {
        limit.rlim_cur = bytes;
        setrlimit(RLIMIT_FSIZE, &limit);
        kv_status status = write_much();
        setrlimit(RLIMIT_FSIZE, &before);
        assert_int_equal(status, KVANT_IO);
        assert_non_null(strstr(kv_last_error(), "write failed"));
        assert_false(exists(part));
        assert_content("old", 3);
    }
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(write_much(), KVANT_OK);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 1048000);
}

/* The commit's own step: a folder in the way of the final name, made after the start. */
static void test_cannot_rename(void **state) {
    (void)state;
    kv_file_writer *w = NULL;
    assert_int_equal(kv_file_writer_open(&w, path), KVANT_OK);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(kv_file_writer_commit(w), KVANT_IO);
    kv_file_writer_close(w);
    assert_false(exists(part));
    assert_int_equal(rmdir(path), 0);
}

/* A device must not be replaced by a file, which root could do. */
static void test_only_files_are_replaced(void **state) {
    (void)state;
    kv_file_writer *w = NULL;
    struct stat info;
    assert_int_equal(kv_file_writer_open(&w, folder), KVANT_INVALID);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(kv_file_writer_open(&w, path), KVANT_INVALID);
    assert_non_null(strstr(kv_last_error(), "not a regular file"));
    assert_true(stat(path, &info) == 0 && S_ISFIFO(info.st_mode));
    assert_false(exists(part));
    assert_null(w);
}

static void test_random_is_the_published_generator(void **state) {
    (void)state;
    /* Computed with the authors' definitions: splitmix64 from seed 0 gives the state, xoshiro256** the
     * numbers. */
    kv_random r;
    kv_random_init(&r, 0);
    assert_true(r.s[0] == 0xe220a8397b1dcdafu && r.s[1] == 0x6e789e6aa1b965f4u);
    assert_true(r.s[2] == 0x06c45d188009454fu && r.s[3] == 0xf88bb8a8724c81ecu);
    kv_random known = {{1, 2, 3, 4}};
    static const uint64_t first[] = {11520, 0, 1509978240, 1215971899390074240};
    for (int i = 0; i < 4; i++) assert_true(kv_random_u64(&known) == first[i]);
}

static void test_random_repeats(void **state) {
    (void)state;
    kv_random a, b, c;
    kv_random_init(&a, 123);
    kv_random_init(&b, 123);
    kv_random_init(&c, 124);
    int same = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t x = kv_random_u64(&a);
        assert_true(x == kv_random_u64(&b));
        same += x == kv_random_u64(&c);
    }
    assert_int_equal(same, 0);
}

static void test_random_distributions(void **state) {
    (void)state;
    enum { N = 100000 };
    kv_random r;
    kv_random_init(&r, 5);
    double unit = 0, sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        double u = kv_random_unit(&r), x = (double)kv_random_normal(&r);
        assert_true(u >= 0 && u < 1 && isfinite(x));
        unit += u;
        sum += x;
        squares += x * x;
    }
    assert_true(fabs(unit / N - 0.5) < 0.005); /* 5 standard errors each */
    assert_true(fabs(sum / N) < 0.016);
    assert_true(fabs(squares / N - 1) < 0.023);
}

static char logged[64];
static kvant_log_level logged_level;

static void remember(void *user, kvant_log_level level, const char *message) {
    ++*(int *)user;
    logged_level = level;
    snprintf(logged, sizeof logged, "%s", message);
}

static void test_log(void **state) {
    (void)state;
    int count = 0;
    kv_log(KVANT_LOG_ERROR, "nobody listens");
    kv_log_set(remember, &count);
    kv_log(KVANT_LOG_WARN, "%d layers", 30);
    kv_log_set(NULL, NULL);
    kv_log(KVANT_LOG_ERROR, "nobody listens again");
    assert_int_equal(count, 1);
    assert_int_equal(logged_level, KVANT_LOG_WARN);
    assert_string_equal(logged, "30 layers");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_map),
        IN_FOLDER(test_map_failures),
        IN_FOLDER(test_write),
        IN_FOLDER(test_close_without_commit),
        IN_FOLDER(test_open_failures),
        IN_FOLDER(test_full_disk),
        IN_FOLDER(test_cannot_rename),
        IN_FOLDER(test_only_files_are_replaced),
        cmocka_unit_test(test_random_is_the_published_generator),
        cmocka_unit_test(test_random_repeats),
        cmocka_unit_test(test_random_distributions),
        cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
