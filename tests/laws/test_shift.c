/* Laws of the lazy shift, on small models with everything but the cache in f32.
 *
 * With one layer, K and V of a token depend on the token and its position only, so a cache that was shifted
 * must equal the evaluation of the kept tokens alone. With more layers it must not: deeper layers remember
 * what was dropped; there the golden files hold what an independent pass makes of a shift, and the same
 * operations on an f32 cache are the measure for the other types. err(T) is the largest logit error that a
 * cache of type T makes without any shift. */
#include "small_session.h"

#include "base/memory.h"
#include "engine/engine.h"

static const char *const kv_types[] = {"f32", "f16", "q8_0"};
enum { N_TYPES = sizeof kv_types / sizeof *kv_types, N_ERR_TOKENS = 60 };

/* Sums of floats in another order; measured: 9e-6. */
static const double F32_ERROR = 1e-4;

static const char *const one_layer[] = {"tiny1", "llama-yarn", "llama-linear", "llama-nemo", "phi3"};
static const char *const all_models[] = {
    "tiny1",          "tiny4",       "tiny-swa", "tiny-out", "llama-yarn", "llama-hd80", "llama-linear",
    "llama3-factors", "gemma3-keys", "gemma2",   "phi3",     "phi3-long",  "qwen3-yarn"};
#define COUNT(list) (sizeof(list) / sizeof *(list))

/* q8_0 codes 32 numbers at once: heads of 80 do not fit. */
static bool type_fits(const kvant_model *model, const char *type) {
    kvant_model_info info = KVANT_MODEL_INFO_INIT;
    kvant_model_get_info(model, &info);
    return info.head_dim % 32 == 0 || strcmp(type, "q8_0") != 0;
}

static double type_error(kvant_model *model, const char *type) {
    kvant_session *a = open_session(model, "f32", N_ERR_TOKENS, 1),
                  *b = open_session(model, type, N_ERR_TOKENS, 1);
    int32_t n_vocab = n_vocab_of(model);
    double most = F32_ERROR / 2;
    for (int32_t i = 0; i < N_ERR_TOKENS; i++) {
        eval_some(a, 0, i, 1);
        eval_some(b, 0, i, 1);
        most = fmax(most, session_distance(a, b, n_vocab));
    }
    kvant_session_close(a);
    kvant_session_close(b);
    return most;
}

/* The text that a sequence holds: numbers of fixed tokens. */
typedef struct text {
    int32_t at[256], n;
} text;

static void push_some(kvant_session *s, text *t, int32_t first, int32_t n) {
    eval_some(s, 0, first, n);
    for (int32_t i = 0; i < n; i++) t->at[t->n++] = first + i;
}

static void drop(kvant_session *s, text *t, int32_t p0, int32_t p1) {
    assert_ok(kvant_seq_drop(s, 0, p0, p1));
    memmove(t->at + p0, t->at + p1, (size_t)(t->n - p1) * sizeof *t->at);
    t->n -= p1 - p0;
}

/* How far the last logits are from those of the text evaluated alone in a new f32 session. */
static double distance_from_prefill(kvant_model *model, kvant_session *s, const text *t) {
    kvant_session *fresh = open_session(model, "f32", 256, 1);
    kvant_token tokens[256];
    for (int32_t i = 0; i < t->n; i++) tokens[i] = some_token(t->at[i]);
    eval(fresh, 0, tokens, t->n);
    double d = session_distance(s, fresh, n_vocab_of(model));
    kvant_session_close(fresh);
    return d;
}

static void check_drop_is_prefill(const char *name, const char *type) {
    kvant_model *model = open_small_model(name);
    kvant_session *s = open_session(model, type, 100, 1);
    double allowed = 2 * type_error(model, type);
    text t = {.n = 0};
    push_some(s, &t, 0, 80);
    drop(s, &t, 5, 47);
    push_some(s, &t, 100, 1);
    double d = distance_from_prefill(model, s, &t);
    push_some(s, &t, 101, 20);
    drop(s, &t, 5, 20);
    drop(s, &t, 0, 3); /* the beginning too */
    push_some(s, &t, 130, 4);
    d = fmax(d, distance_from_prefill(model, s, &t));
    if (!(d <= allowed)) fail_msg("%s, %s: %g from a prefill, allowed %g", name, type, d, allowed);
    kvant_session_close(s);
    kvant_model_close(model);
}

static void test_one_layer_drop_is_prefill(void **state) {
    (void)state;
    for (size_t m = 0; m < COUNT(one_layer); m++)
        for (int k = 0; k < N_TYPES; k++) check_drop_is_prefill(one_layer[m], kv_types[k]);
}

/* 64 cells, the first 4 kept, half of the rest dropped whenever they are full, for 300 tokens. */
static void test_endless_shifting(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny1");
    for (int k = 0; k < N_TYPES; k++) {
        kvant_session *s = open_session(model, kv_types[k], 64, 1);
        double allowed = 2 * type_error(model, kv_types[k]), first = 0, d = 0;
        text t = {.n = 0};
        int32_t n_shifts = 0;
        for (int32_t i = 0; i < 300; i++) {
            push_some(s, &t, i, 1);
            if (t.n < 64) continue;
            drop(s, &t, 4, 34);
            push_some(s, &t, 1000 + i, 1);
            d = distance_from_prefill(model, s, &t);
            if (!n_shifts++) first = d;
            if (!(d <= allowed)) fail_msg("%s, shift %d: %g, allowed %g", kv_types[k], n_shifts, d, allowed);
        }
        assert_in_range(n_shifts, 8, 12);
        print_message("%s: %g after one shift, %g after %d\n", kv_types[k], first, d, n_shifts);
        kvant_session_close(s);
    }
    kvant_model_close(model);
}

/* Attention depends on distances only: moving all there is changes nothing, for every way of rotating. */
static void test_all_moved_is_nothing_moved(void **state) {
    (void)state;
    static const int64_t deltas[] = {1, 1000, 999983};
    for (size_t m = 0; m < COUNT(all_models); m++) {
        kvant_model *model = open_small_model(all_models[m]);
        kvant_session *still = open_session(model, "f32", 64, 1);
        eval_some(still, 0, 0, 50);
        for (size_t i = 0; i < COUNT(deltas); i++) {
            kvant_session *moved = open_session(model, "f32", 64, 1);
            eval_some(moved, 0, 0, 20);
            assert_ok(kvant_seq_shift(moved, 0, 0, -1, deltas[i]));
            assert_int_equal(kvant_seq_end(moved, 0), 20 + deltas[i]);
            eval_some(moved, 0, 20, 30);
            double d = session_distance(still, moved, n_vocab_of(model));
            if (!(d <= F32_ERROR)) fail_msg("%s moved by %lld: %g", all_models[m], (long long)deltas[i], d);
            kvant_session_close(moved);
        }
        kvant_session_close(still);
        kvant_model_close(model);
    }
}

/* A shift is the sum of its parts, whatever the way: bit for bit, as no key is touched. */
static void test_shifts_add_up(void **state) {
    (void)state;
    for (size_t m = 0; m < COUNT(all_models); m++) {
        kvant_model *model = open_small_model(all_models[m]);
        int32_t n_vocab = n_vocab_of(model);
        for (int k = 0; k < N_TYPES && type_fits(model, kv_types[k]); k++) {
            kvant_session *a = open_session(model, kv_types[k], 64, 1),
                          *b = open_session(model, kv_types[k], 64, 1);
            eval_some(a, 0, 0, 40);
            eval_some(b, 0, 0, 40);
            assert_ok(kvant_seq_drop(a, 0, 6, 16));
            assert_ok(kvant_seq_remove(b, 0, 6, 16));
            assert_ok(kvant_seq_shift(b, 0, 16, -1, 500));
            for (int64_t at = 516, i = 0; i < 100; i++) { /* there and back; in the end 10 down */
                int64_t delta = i == 99 ? 6 - at : i % 2 ? 13 * i : -7 * i;
                assert_ok(kvant_seq_shift(b, 0, at, -1, delta));
                at += delta;
            }
            eval_some(a, 0, 50, 3);
            eval_some(b, 0, 50, 3);
            assert_memory_equal(kvant_logits(a, 0), kvant_logits(b, 0), (size_t)n_vocab * sizeof(float));
            kvant_session_close(a);
            kvant_session_close(b);
        }
        kvant_model_close(model);
    }
}

/* The same random operations on a cache of each type and on an f32 one. */
static double replay_distance(kvant_model *model, const char *type) {
    kvant_session *a = open_session(model, "f32", 96, 1), *b = open_session(model, type, 96, 1);
    double most = 0;
    uint32_t random = 12345;
    for (int i = 0; i < 30; i++) {
        int32_t end = (int32_t)kvant_seq_end(a, 0);
        random = random * 1664525u + 1013904223u;
        int32_t p0 = (int32_t)(random >> 8) % (end + 1), p1 = p0 + (int32_t)(random >> 20) % 9;
        if (i % 3 == 2 && end > 20) {
            assert_ok(kvant_seq_drop(a, 0, p0, p1));
            assert_ok(kvant_seq_drop(b, 0, p0, p1));
        } else if (i % 5 == 3) {
            assert_ok(kvant_seq_shift(a, 0, p0, -1, 5));
            assert_ok(kvant_seq_shift(b, 0, p0, -1, 5));
        }
        eval_some(a, 0, i * 10, 3);
        eval_some(b, 0, i * 10, 3);
        most = fmax(most, session_distance(a, b, n_vocab_of(model)));
    }
    kvant_session_close(a);
    kvant_session_close(b);
    return most;
}

static void test_types_follow_f32(void **state) {
    (void)state;
    for (size_t m = 0; m < COUNT(all_models); m++) {
        kvant_model *model = open_small_model(all_models[m]);
        for (int k = 1; k < N_TYPES && type_fits(model, kv_types[k]); k++) {
            double allowed = 3 * type_error(model, kv_types[k]), d = replay_distance(model, kv_types[k]);
            print_message("%s, %s: %.2g of %.2g allowed\n", all_models[m], kv_types[k], d, allowed);
            if (!(d <= allowed)) fail_msg("%s, %s: %g, allowed %g", all_models[m], kv_types[k], d, allowed);
        }
        kvant_model_close(model);
    }
}

/* Copies share their cells at positions of their own. */
static void test_copies_at_other_positions(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    int32_t n_vocab = n_vocab_of(model);
    for (int k = 0; k < N_TYPES; k++) {
        kvant_session *s = open_session(model, kv_types[k], 64, 2);
        eval_some(s, 0, 0, 40);
        assert_ok(kvant_seq_copy(s, 1, 0));
        assert_ok(kvant_seq_shift(s, 1, 0, -1, 700));
        eval_some(s, 0, 50, 1);
        float *first = copy_logits(s, n_vocab);
        eval_some(s, 1, 50, 1);
        float *second = copy_logits(s, n_vocab);
        assert_true(logit_distance(first, second, n_vocab) <=
                    F32_ERROR + (k ? type_error(model, kv_types[k]) : 0));
        assert_ok(kvant_seq_remove(s, 0, 40, -1));
        assert_ok(kvant_seq_drop(s, 1, 705, 720)); /* nothing to the other */
        eval_some(s, 0, 50, 1);
        assert_memory_equal(kvant_logits(s, 0), first, (size_t)n_vocab * sizeof(float));
        free(first);
        free(second);
        kvant_session_close(s);
    }
    kvant_model_close(model);
}

static void test_shift_takes_no_memory(void **state) {
    (void)state;
    kvant_model *model = open_small_model("tiny4");
    kvant_session *s = open_session(model, "q8_0", 128, 1);
    eval_some(s, 0, 0, 100);
    int64_t before = kv_alloc_count();
    assert_ok(kvant_seq_drop(s, 0, 4, 52));
    assert_ok(kvant_seq_shift(s, 0, 4, -1, 100));
    assert_ok(kvant_seq_shift(s, 0, 104, -1, -100));
    assert_int_equal(kv_alloc_count(), before);
    kvant_session_close(s);
    kvant_model_close(model);
}

/* What unused cells hold is never looked at. */
static void fill_with_nan(kvant_session *s, int32_t n_layers) {
    for (int32_t i = 0; i < n_layers; i++) {
        kv_store *store = kv_cache_store(s->cache, i);
        memset(store->k.buffer->host, 0xff, store->k.buffer->bytes);
        memset(store->v.buffer->host, 0xff, store->v.buffer->bytes);
    }
}

static void test_nan_in_unused_cells(void **state) {
    (void)state;
    static const char *const models[] = {"tiny4", "tiny-swa", "phi3-long"};
    for (size_t m = 0; m < COUNT(models); m++) {
        kvant_model *model = open_small_model(models[m]);
        kvant_model_info info = KVANT_MODEL_INFO_INIT;
        kvant_model_get_info(model, &info);
        for (int k = 0; k < N_TYPES; k++) {
            for (int act = KVANT_ACT_FAST; act <= KVANT_ACT_F32; act++) {
                kvant_session *clean = open_session(model, kv_types[k], 70, 2),
                              *dirty = open_session(model, kv_types[k], 70, 2);
                clean->act = dirty->act = (kvant_act)act;
                fill_with_nan(dirty, info.n_layers);
                for (int32_t n = 1; n <= 37; n += 12) {
                    kvant_session *both[] = {clean, dirty};
                    for (int i = 0; i < 2; i++) {
                        eval_some(both[i], 1, 0, 1);
                        eval_some(both[i], 0, 0, n);
                        assert_ok(kvant_seq_remove(both[i], 0, n / 3, n / 2));
                        eval_some(both[i], 0, 100, 2);
                    }
                    assert_memory_equal(kvant_logits(clean, 0), kvant_logits(dirty, 0),
                                        (size_t)info.n_vocab * sizeof(float));
                    for (int i = 0; i < 2; i++) {
                        assert_ok(kvant_seq_clear(both[i], 0));
                        assert_ok(kvant_seq_clear(both[i], 1));
                    }
                    fill_with_nan(dirty, info.n_layers);
                }
                kvant_session_close(clean);
                kvant_session_close(dirty);
            }
        }
        kvant_model_close(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_layer_drop_is_prefill),  cmocka_unit_test(test_endless_shifting),
        cmocka_unit_test(test_all_moved_is_nothing_moved), cmocka_unit_test(test_shifts_add_up),
        cmocka_unit_test(test_types_follow_f32),           cmocka_unit_test(test_copies_at_other_positions),
        cmocka_unit_test(test_shift_takes_no_memory),      cmocka_unit_test(test_nan_in_unused_cells),
    };
    return cmocka_run_group_tests_name("shift", tests, NULL, NULL);
}
