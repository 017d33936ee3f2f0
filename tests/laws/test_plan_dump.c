/* What runs where: for every type of K with every type of V, in the layouts that the device likes best and in
 * plain rows, decoding and a batch, no step falls back on the scalar reference of its op, and the dump says
 * which types and layouts the cache really has. */
#include "kvant_tools.h"
#include "session_fixture.h"

#include "dtype/dtype.h"

enum { BATCH = 32 };

typedef struct seen {
    int32_t n_nodes, n_attend, n_write, n_reference;
    const char *type, *layout; /* of the cache, expected */
    int64_t cache_bytes;
} seen;

static void look(void *user, const kvant_plan_node *n) {
    seen *s = user;
    s->n_nodes++;
    assert_true(*n->op && *n->device && *n->kernel && *n->type && *n->layout);
    assert_true(n->bytes > 0);
    if (strstr(n->kernel, "reference")) {
        print_error("%s %s runs by its reference, K/V %s, %s\n", n->label, n->op, n->type, n->layout);
        s->n_reference++;
    }
    bool attends = strcmp(n->op, "attend") == 0;
    if (!attends && strcmp(n->op, "cache_write") != 0) return;
    s->n_attend += attends;
    s->n_write += !attends;
    assert_string_equal(n->type, s->type);
    assert_string_equal(n->layout, s->layout);
    if (attends) s->cache_bytes += n->bytes;
}

static void check_pair(kvant_model *m, const char *k, const char *v, const char *layout, kvant_act act) {
    char type[64], layouts[64];
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    kvant_kv_row row = KVANT_KV_ROW_INIT;
    o.n_ctx = 128;
    o.n_batch = BATCH;
    o.type_k = k;
    o.type_v = v;
    o.layout_k = o.layout_v = layout;
    o.act = act;
    kvant_session *s = fixture_session(m, o);
    fixture_check(kvant_session_kv_row(s, 0, &row));
    snprintf(type, sizeof type, "%s/%s", k, v);
    snprintf(layouts, sizeof layouts, "%s/%s", row.layout_k, row.layout_v);
    for (int32_t n = 1; n <= BATCH; n += BATCH - 1) {
        seen found = {.type = type, .layout = layouts};
        fixture_check(kvant_dump_plan(s, n, look, &found));
        assert_int_equal(found.n_reference, 0);
        assert_int_equal(found.n_attend, 4); /* layers */
        assert_int_equal(found.n_write, 4);
        assert_true(found.n_nodes > 4 * 8);
        assert_in_range(found.cache_bytes, row.bytes_total, row.bytes_total * 5 / 4); /* whole tiles */
    }
    kvant_session_close(s);
}

static void check_types(const char *layout, kvant_act act) {
    kvant_model *m = fixture_open(FIXTURE_DATA "tiny4.gguf", 1);
    int32_t n_pairs = 0;
    for (int32_t k = 0; k < kv_dtype_count(); k++)
        for (int32_t v = 0; v < kv_dtype_count(); v++)
            if (kv_dtype_at(k)->caches && kv_dtype_at(v)->caches) {
                check_pair(m, kv_dtype_at(k)->name, kv_dtype_at(v)->name, layout, act);
                n_pairs++;
            }
    assert_true(n_pairs >= 81);
    kvant_model_close(m);
}

static void test_best_layouts(void **state) { (void)state, check_types(NULL, KVANT_ACT_FAST); }
static void test_rows(void **state) { (void)state, check_types("rows", KVANT_ACT_FAST); }
static void test_floats(void **state) { (void)state, check_types(NULL, KVANT_ACT_F32); }

static void test_wrong_use(void **state) {
    (void)state;
    kvant_model *m = fixture_open(FIXTURE_DATA "tiny4.gguf", 1);
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.n_batch = BATCH;
    kvant_session *s = fixture_session(m, o);
    static const int32_t wrong[] = {-1, 0, BATCH + 1, INT32_MAX};
    for (int i = 0; i < 4; i++)
        assert_int_equal(kvant_dump_plan(s, wrong[i], look, &(seen){0}), KVANT_INVALID);
    kvant_session_close(s);
    kvant_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_layouts),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_wrong_use),
    };
    return cmocka_run_group_tests_name("plan dump", tests, NULL, NULL);
}
