/* Layouts from outside: what a description must be, that sessions compute with them what they compute with
 * plain rows, types with own kernels and without, and that the check finds kernels that are wrong.
 *
 * ctest: single */
#include "kvant_ext.h"
#include "kvant_tools.h"

#include "../../examples/custom_layout/pairs8.c"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static kvant_layout_desc described(const char *name, int32_t tile, int32_t group, int32_t chunk) {
    kvant_layout_desc d = KVANT_LAYOUT_DESC_INIT;
    d.name = name;
    d.tile = tile;
    d.group = group;
    d.chunk = chunk;
    return d;
}

static void refuses(const kvant_layout_desc *d, const char *why) {
    assert_int_equal(kvant_register_layout(d), KVANT_INVALID);
    if (!strstr(kvant_last_error(), why)) fail_msg("\"%s\" does not say: %s", kvant_last_error(), why);
}

static void test_descriptions(void **state) {
    (void)state;
    kvant_layout_desc d;
    refuses(NULL, "no layout");
    d = described(NULL, 1, 1, 1), refuses(&d, "without a name");
    d = described("", 1, 1, 1), refuses(&d, "without a name");
    d = described("two words", 1, 1, 1), refuses(&d, "letters");
    d = described("a-name-of-thirty-two-characters-", 1, 1, 1), refuses(&d, "at most 31 bytes");
    d = described("rows", 1, 1, 1), refuses(&d, "there is one");
    d = described("odd", 0, 1, 1), refuses(&d, "tile of 0");
    d = described("odd", 3, 1, 1), refuses(&d, "must divide 64");
    d = described("odd", 128, 1, 1), refuses(&d, "must divide 64");
    d = described("odd", 8, 3, 1), refuses(&d, "groups of 3");
    d = described("odd", 8, 0, 1), refuses(&d, "groups of 0");
    d = described("odd", 8, 4, 0), refuses(&d, "turns of 0");
    d = described("odd", 8, 4, 4), d.version = 99, refuses(&d, "version 99");
    d = described("odd", 8, 4, 4), d.size = 0, refuses(&d, "_INIT");
    d = described("odd", 8, 4, 4), d.n_kernels = 1, refuses(&d, "kernels is NULL");
    d.kernels = kernels, d.n_kernels = -1, refuses(&d, "n_kernels is -1");
    d.n_kernels = 33, refuses(&d, "room for");
}

static void test_kernels(void **state) {
    (void)state;
    kvant_layout_kernel k[2] = {KVANT_LAYOUT_KERNEL_INIT, KVANT_LAYOUT_KERNEL_INIT};
    kvant_layout_desc d = described("odd", 8, 4, 4);
    d.kernels = k;
    d.n_kernels = 1;
    refuses(&d, "no type");
    k[0].type = "q2_k", refuses(&d, "no type that a cache can have");
    k[0].type = "q8_0", refuses(&d, "neither");
    k[0].score = k[1].score = score_q8_0;
    k[1].type = "q8_0", d.n_kernels = 2, refuses(&d, "there are two");
    for (int32_t i = 0; kvant_layout_name(i); i++) assert_string_not_equal(kvant_layout_name(i), "odd");
}

/* ---- sessions ---- */

enum { N_PROMPT = 90 };

/* Logits behind a prompt that was read in two pieces, the second at moved positions. */
static void read_prompt(float *logits, kvant_model *model, const char *type, const char *layout,
                        int32_t n_vocab) {
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    kvant_session *s = NULL;
    kvant_token tokens[N_PROMPT];
    o.type_k = o.type_v = type;
    o.layout_k = o.layout_v = layout;
    o.act = KVANT_ACT_F32;
    o.n_ctx = 128;
    assert_int_equal(kvant_session_create(&s, model, &o), KVANT_OK);
    for (int32_t i = 0; i < N_PROMPT; i++) tokens[i] = (i * 13 + 5) % n_vocab;
    kvant_chunk first = {0, tokens, 70, KVANT_LOGITS_NONE},
                second = {0, tokens + 70, N_PROMPT - 70, KVANT_LOGITS_LAST};
    assert_int_equal(kvant_eval(s, &first, 1), KVANT_OK);
    assert_int_equal(kvant_seq_drop(s, 0, 10, 31), KVANT_OK);
    assert_int_equal(kvant_eval(s, &second, 1), KVANT_OK);
    memcpy(logits, kvant_logits(s, 0), (size_t)n_vocab * sizeof *logits);
    kvant_session_close(s);
}

static void test_sessions(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "f16", "q8_0", "q4_0"};
    static float rows[65536], own[65536];
    kvant_layout_desc quads = described("quads3", 4, 2, 3); /* no kernels; turns that divide nothing evenly */
    kvant_model *model = NULL;
    kvant_model_info info = KVANT_MODEL_INFO_INIT;
    assert_int_equal(kvant_register_layout(&kvant_layout), KVANT_OK);
    assert_int_equal(kvant_register_layout(&quads), KVANT_OK);
    refuses(&kvant_layout, "there is one");
    assert_int_equal(kvant_model_open(&model, KVANT_SOURCE_DIR "/tests/data/llama-f32.gguf", NULL), KVANT_OK);
    kvant_model_get_info(model, &info);
    assert_true(info.n_vocab <= 65536);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int l = 0; l < 2; l++) {
            read_prompt(rows, model, types[t], "rows", info.n_vocab);
            read_prompt(own, model, types[t], l ? "quads3" : "pairs8", info.n_vocab);
            double most = 0, off = 0;
            for (int32_t i = 0; i < info.n_vocab; i++) {
                most = fmax(most, fabs((double)rows[i]));
                off = fmax(off, fabs((double)rows[i] - (double)own[i]));
            }
            print_message("  %s: largest logit %.3g, largest difference %.2g\n", types[t], most, off);
            /* other kernels add in another order, and what is then coded may be a step off */
            assert_true(most > 0.1 && off < (t < 1 ? 1e-5 : 2e-3) * most);
        }
    kvant_model_close(model);
}

/* ---- the check ---- */

static void score_zero(const kvant_score_args *a) {
    for (int32_t i = 0; i < a->n_queries; i++)
        memset(a->scores + (size_t)i * a->scores_step, 0, (size_t)a->n_cells * sizeof *a->scores);
}

/* Of f32 in pairs: right, but for looking at cells whose weight is 0. */
static void accumulate_all(const kvant_accumulate_args *a) {
    for (int32_t c = 0; c < a->n_cells; c++) {
        const float *value =
            (const float *)a->values + (size_t)(c / 2) * a->tile_bytes / sizeof(float) + c % 2;
        for (int32_t i = 0; i < a->n_queries; i++)
            for (int32_t d = 0; d < a->head_dim; d++)
                a->sums[i * a->head_dim + d] +=
                    a->weights[(size_t)i * a->weights_step + (size_t)c] * value[2 * d];
    }
}

static void note_law(void *user, const kvant_law_report *r) {
    char *broken = user;
    if (!r->holds) strcat(broken, r->law[0] == 'a' ? "attention " : r->law[0] == 'u' ? "unused " : "other ");
    assert_true(r->holds == !*r->message);
}

static void checks(const char *name, const char *what) {
    char broken[200] = "";
    kvant_layout_check check = KVANT_LAYOUT_CHECK_INIT;
    kvant_layout_result result = KVANT_LAYOUT_RESULT_INIT;
    check.seed = 3;
    check.law = note_law;
    check.user = broken;
    assert_int_equal(kvant_check_layout(name, &check, &result), KVANT_OK);
    assert_string_equal(broken, what);
    assert_true(result.n_holding + result.n_broken >= 6 && !result.n_broken == !*what);
}

static void test_check(void **state) {
    (void)state;
    kvant_layout_kernel zero = {sizeof zero, "q4_0", score_zero, NULL};
    kvant_layout_kernel all = {sizeof all, "f32", NULL, accumulate_all};
    kvant_layout_desc d = described("zero", 2, 2, 4);
    d.kernels = &zero;
    d.n_kernels = 1;
    assert_int_equal(kvant_register_layout(&d), KVANT_OK);
    d = described("all", 2, 2, 4);
    d.kernels = &all;
    d.n_kernels = 1;
    assert_int_equal(kvant_register_layout(&d), KVANT_OK);
    checks("rows", "");
    checks("pairs8", "");
    checks("quads3", "");
    checks("zero", "attention ");
    checks("all", "attention unused ");
    assert_int_equal(kvant_check_layout("none", NULL, NULL), KVANT_NOT_FOUND);
    assert_int_equal(kvant_check_layout(NULL, NULL, NULL), KVANT_NOT_FOUND);
}

/* Every kernel is called for its own type, however many there are. */
// clang-format off
#define SPIES(X) \
    X(0, f32) X(1, f16) X(2, bf16) X(3, q8_0) X(4, q5_1) X(5, q5_0) X(6, q4_1) X(7, q4_0) X(8, iq4_nl) \
    X(9, n6) X(10, n4) X(11, n3)
// clang-format on
enum { N_SPIES = 12 };
static int32_t seen[N_SPIES];
#define SPY(i, type)                                          \
    static void spy_on_##type(const kvant_score_args *args) { \
        seen[i]++;                                            \
        score_zero(args);                                     \
    }
SPIES(SPY)
#undef SPY

static void test_many_kernels(void **state) {
    (void)state;
    static float logits[65536];
    kvant_layout_kernel spies[N_SPIES] = {
#define SPY(i, name) {.size = sizeof(kvant_layout_kernel), .type = #name, .score = spy_on_##name},
        SPIES(SPY)
#undef SPY
    };
    kvant_layout_desc d = described("spies", 8, 4, 4);
    kvant_model_options one = KVANT_MODEL_OPTIONS_INIT;
    kvant_model *model = NULL;
    kvant_model_info info = KVANT_MODEL_INFO_INIT;
    one.n_threads = 1;
    d.kernels = spies;
    d.n_kernels = N_SPIES;
    assert_int_equal(kvant_register_layout(&d), KVANT_OK);
    assert_int_equal(kvant_model_open(&model, KVANT_SOURCE_DIR "/tests/data/llama-f32.gguf", &one), KVANT_OK);
    kvant_model_get_info(model, &info);
    for (int32_t t = 0; t < N_SPIES; t++) {
        memset(seen, 0, sizeof seen);
        read_prompt(logits, model, spies[t].type, "spies", info.n_vocab);
        for (int32_t i = 0; i < N_SPIES; i++) assert_int_equal(seen[i] > 0, i == t);
    }
    kvant_model_close(model);
}

static void test_no_more_room(void **state) {
    (void)state;
    char name[16];
    int n = 0;
    kvant_layout_desc d = described(name, 2, 1, 1);
    do snprintf(name, sizeof name, "more%d", n++);
    while (n < 40 && kvant_register_layout(&d) == KVANT_OK);
    assert_true(n > 8 && n <= 16);
    refuses(&d, "from outside already");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptions), cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_sessions),     cmocka_unit_test(test_check),
        cmocka_unit_test(test_many_kernels), cmocka_unit_test(test_no_more_room),
    };
    return cmocka_run_group_tests_name("ext", tests, NULL, NULL);
}
