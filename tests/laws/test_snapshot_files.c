/* Files that are not what they should be, or memory that runs out: one line that says what is wrong, and
 * nothing has changed, neither in the cache nor under the file's name.
 *
 * ctest: single */
#include "snapshot_fixture.h"

#include "base/memory.h"

#include <sys/stat.h>

enum { N_TOKENS = 6 };

/* A model, a session whose sequence 0 was saved, and a sequence 1 that no failure may touch. */
typedef struct fixture {
    kvant_model *model;
    kvant_session *session;
    uint8_t *bytes, *rows;
    size_t n, n_rows;
} fixture;

static fixture open_fixture(void) {
    fixture f = {.model = open_small_model("tiny1")};
    f.session = open_session(f.model, "q8_0", 64, 2);
    eval_some(f.session, 0, 0, N_TOKENS);
    assert_ok(kvant_seq_drop(f.session, 0, 1, 3));
    assert_ok(kvant_seq_save(f.session, 0, snapshot_path));
    f.bytes = read_file(&f.n);
    eval_some(f.session, 1, 40, 9);
    f.rows = copy_rows(f.session, 1, &f.n_rows);
    return f;
}

static void close_fixture(fixture *f) {
    kvant_session_close(f->session);
    kvant_model_close(f->model);
    free(f->bytes);
    free(f->rows);
}

static void check_untouched(const fixture *f) {
    size_t n;
    uint8_t *rows = copy_rows(f->session, 1, &n);
    assert_int_equal(kvant_seq_tokens(f->session, 1), 9);
    assert_int_equal(kvant_seq_end(f->session, 1), 9);
    assert_int_equal(n, f->n_rows);
    assert_memory_equal(rows, f->rows, n);
    free(rows);
}

/* Loading `n` bytes fails, with a message of one line that begins with the file's name. */
static void refuse(const fixture *f, const uint8_t *bytes, size_t n, const char *what, size_t at) {
    write_file(bytes, n);
    kvant_status status = kvant_seq_load(f->session, 1, snapshot_path);
    if (status != KVANT_FORMAT && status != KVANT_UNSUPPORTED && status != KVANT_INVALID)
        fail_msg("%s %zu of %zu: %s", what, at, f->n, kvant_status_text(status));
    assert_int_equal(strncmp(kvant_last_error(), snapshot_path, strlen(snapshot_path)), 0);
    assert_null(strchr(kvant_last_error(), '\n'));
    check_untouched(f);
}

static void test_truncated_anywhere(void **state) {
    (void)state;
    fixture f = open_fixture();
    for (size_t n = 0; n < f.n; n++) refuse(&f, f.bytes, n, "length", n);
    uint8_t *longer = calloc(1, f.n + 8);
    assert_non_null(longer);
    memcpy(longer, f.bytes, f.n);
    refuse(&f, longer, f.n + 8, "length", f.n + 8);
    free(longer);
    write_file(f.bytes, f.n);
    assert_ok(kvant_seq_load(f.session, 1, snapshot_path)); /* whole it is good */
    assert_int_equal(kvant_seq_tokens(f.session, 1), N_TOKENS - 2);
    close_fixture(&f);
}

static void test_every_byte_flipped(void **state) {
    (void)state;
    fixture f = open_fixture();
    for (size_t i = 0; i < f.n; i++)
        for (int bit = 0; bit < 8; bit += 7) {
            f.bytes[i] ^= (uint8_t)(1 << bit);
            refuse(&f, f.bytes, f.n, "byte", i);
            f.bytes[i] ^= (uint8_t)(1 << bit);
        }
    close_fixture(&f);
}

/* ---- foreign files ---- */

static void check_refused(const char *from, const char *to, kvant_session_options theirs,
                          kvant_session_options ours, const char *words) {
    kvant_model *a = open_small_model(from), *b = open_small_model(to);
    kvant_session *saved = NULL, *other = NULL;
    theirs.act = ours.act = KVANT_ACT_F32;
    assert_ok(kvant_session_create(&saved, a, &theirs));
    assert_ok(kvant_session_create(&other, b, &ours));
    eval_some(saved, 0, 0, 20);
    eval_some(other, 0, 0, 5);
    assert_ok(kvant_seq_save(saved, 0, snapshot_path));
    assert_int_not_equal(kvant_seq_load(other, 0, snapshot_path), KVANT_OK);
    print_message("%s\n", kvant_last_error());
    if (!strstr(kvant_last_error(), words)) fail_msg("\"%s\" has no \"%s\"", kvant_last_error(), words);
    assert_int_equal(kvant_seq_tokens(other, 0), 5);
    kvant_session_close(saved);
    kvant_session_close(other);
    kvant_model_close(a);
    kvant_model_close(b);
}

static void test_what_differs_is_named(void **state) {
    (void)state;
    kvant_session_options plain = KVANT_SESSION_OPTIONS_INIT, small = plain, large = plain;
    plain.n_ctx = 64;
    small.n_ctx = 19;
    large.n_ctx = 20000;
    check_refused("tiny1", "tiny4", plain, plain, "of another model: layers 1, here 4");
    check_refused("tiny4", "tiny-swa", plain, plain, "of another model");
    check_refused("llama-f32", "phi3", plain, plain, "architecture llama, here phi3");
    check_refused("tiny1", "llama-yarn", plain, plain, "of another model");
    check_refused("tiny1", "tiny1", plain, small, "20 cells to restore, room for 19 of 19");
    check_refused("phi3-long", "phi3-long", plain, large,
                  "rotary frequency"); /* long factors, not short ones */
}

static void test_wrong_calls(void **state) {
    (void)state;
    fixture f = open_fixture();
    size_t n = 0;
    kvant_token tokens[4];
    assert_status(kvant_seq_save(f.session, 2, snapshot_path), KVANT_INVALID);
    assert_status(kvant_seq_load(f.session, -1, snapshot_path), KVANT_INVALID);
    assert_status(kvant_seq_save(f.session, 0, NULL), KVANT_INVALID);
    assert_status(kvant_seq_load(f.session, 0, NULL), KVANT_INVALID);
    assert_status(kvant_seq_load(f.session, 0, "/nowhere/file"), KVANT_NOT_FOUND);
    assert_status(kvant_seq_save(f.session, 0, "/nowhere/file"), KVANT_NOT_FOUND);
    assert_status(kvant_seq_get_tokens(f.session, 1, tokens, 4, &n), KVANT_INVALID);
    assert_int_equal(n, 9);
    check_untouched(&f);
    close_fixture(&f);
}

/* ---- memory that runs out ---- */

static void test_save_without_memory(void **state) {
    (void)state;
    fixture f = open_fixture();
    int64_t n = 0;
    for (;; n++) {
        kv_alloc_fail_after(n);
        kvant_status status = kvant_seq_save(f.session, 1, snapshot_path);
        kv_alloc_fail_after(-1);
        if (!status) break;
        assert_status(status, KVANT_NO_MEMORY);
        size_t size;
        uint8_t *bytes = read_file(&size); /* the old file is there, as it was */
        assert_int_equal(size, f.n);
        assert_memory_equal(bytes, f.bytes, size);
        free(bytes);
    }
    assert_true(n > 5);
    close_fixture(&f);
}

static void test_load_without_memory(void **state) {
    (void)state;
    fixture f = open_fixture();
    int64_t n = 0;
    for (;; n++) {
        kv_alloc_fail_after(n);
        kvant_status status = kvant_seq_load(f.session, 1, snapshot_path);
        kv_alloc_fail_after(-1);
        if (!status) break;
        assert_status(status, KVANT_NO_MEMORY);
        check_untouched(&f);
    }
    assert_true(n > 5);
    assert_true(same_rows(f.session, 0, f.session, 1));
    close_fixture(&f);
}

/* A full cache takes a sequence in place of one that it holds. */
static void test_in_place_of_itself(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    kvant_session *s = open_session(model, "q8_0", 64, 2);
    eval_some(s, 0, 0, 30);
    assert_ok(kvant_seq_save(s, 0, snapshot_path));
    eval_some(s, 1, 0, 34);
    assert_ok(kvant_seq_load(s, 0, snapshot_path));
    assert_int_equal(kvant_seq_tokens(s, 0), 30);
    assert_ok(kvant_seq_copy(s, 1, 0)); /* shared cells do not become free */
    eval_some(s, 0, 30, 20);
    assert_status(kvant_seq_load(s, 1, snapshot_path), KVANT_CONTEXT_FULL);
    assert_non_null(strstr(kvant_last_error(), "30 cells to restore, room for 14 of 64"));
    assert_int_equal(kvant_seq_tokens(s, 1), 30);
    kvant_session_close(s);
    kvant_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_truncated_anywhere, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_every_byte_flipped, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_what_differs_is_named, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_wrong_calls, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_save_without_memory, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_load_without_memory, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(test_in_place_of_itself, open_folder, close_folder)};
    return cmocka_run_group_tests_name("snapshot files", tests, NULL, NULL);
}
