/* No allocation while decoding: once the plan for one token exists, steps through evaluation and sampling
 * take no memory, across pages of the cache, with and without turned spans, for several sequences; nor does
 * generation between one piece of text and the next. */
#include "base/memory.h"
#include "session_fixture.h"

enum { PROMPT = 30, STEPS = 150 /* over two page boundaries */ };

static kvant_sampler *open_sampler(const kvant_model *m) {
    kvant_sampler_options o = KVANT_SAMPLER_OPTIONS_INIT;
    o.repeat_penalty = 1.1f;
    o.seed = 7;
    kvant_sampler *s = NULL;
    fixture_check(kvant_sampler_create(&s, m, &o));
    return s;
}

static kvant_token sample(kvant_sampler *sampler, const float *logits) {
    kvant_token t = 0;
    fixture_check(kvant_sample(&t, sampler, logits));
    kvant_sampler_accept(sampler, t);
    return t;
}

/* Every sequence takes one token a step. */
static void decode_steps(kvant_session *s, kvant_sampler *sampler, int32_t n_seqs, int32_t n_steps) {
    kvant_token tokens[4];
    kvant_chunk chunks[4];
    for (int32_t i = 0; i < n_seqs; i++) chunks[i] = (kvant_chunk){i, &tokens[i], 1, KVANT_LOGITS_LAST};
    for (int32_t step = 0; step < n_steps; step++) {
        for (int32_t i = 0; i < n_seqs; i++) tokens[i] = sample(sampler, kvant_logits(s, i));
        fixture_check(kvant_eval(s, chunks, n_seqs));
    }
}

static void prefill(kvant_session *s, const kvant_model *m, int32_t n_seqs) {
    kvant_token tokens[PROMPT];
    kvant_chunk chunks[4];
    for (int32_t i = 0; i < PROMPT; i++) tokens[i] = fixture_token(m, i);
    for (int32_t i = 0; i < n_seqs; i++) chunks[i] = (kvant_chunk){i, tokens, PROMPT, KVANT_LOGITS_LAST};
    fixture_check(kvant_eval(s, chunks, n_seqs));
}

static void check_decoding(const char *file, const char *kv, int32_t n_seqs, bool shifted) {
    kvant_model *m = fixture_open(file, 2);
    kvant_session_options o = KVANT_SESSION_OPTIONS_INIT;
    o.n_ctx = n_seqs * (PROMPT + STEPS + 10);
    o.n_sequences = n_seqs;
    o.type_k = o.type_v = kv;
    kvant_session *s = fixture_session(m, o);
    kvant_sampler *sampler = open_sampler(m);
    prefill(s, m, n_seqs);
    if (shifted) fixture_check(kvant_seq_drop(s, 0, 4, 9));
    decode_steps(s, sampler, n_seqs, 1); /* makes the plan */
    int64_t before = kv_alloc_count();
    decode_steps(s, sampler, n_seqs, STEPS);
    assert_int_equal(kv_alloc_count() - before, 0);
    kvant_sampler_close(sampler);
    kvant_session_close(s);
    kvant_model_close(m);
}

static void test_one_sequence(void **state) {
    (void)state;
    check_decoding(FIXTURE_DATA "tiny4.gguf", "f16", 1, false);
    check_decoding(FIXTURE_DATA "tiny-swa.gguf", "f32", 1, false);
}

static void test_turned_spans(void **state) {
    (void)state;
    check_decoding(FIXTURE_DATA "tiny4.gguf", "f16", 1, true);
}

static void test_four_sequences(void **state) {
    (void)state;
    check_decoding(FIXTURE_DATA "tiny1.gguf", "f16", 4, true);
}

/* ---- generation */

typedef struct counts {
    int64_t first, last;
    int32_t n_pieces;
} counts;

static bool count_at_text(void *user, const char *text, size_t n) {
    (void)text, (void)n;
    counts *c = user;
    c->last = kv_alloc_count();
    /* the first step has made the plan once the second piece is there */
    if (c->n_pieces++ == 1) c->first = c->last;
    return true;
}

static kvant_generate_options counting_options(counts *c, const char *const *stop) {
    kvant_generate_options o = KVANT_GENERATE_OPTIONS_INIT;
    o.max_tokens = STEPS;
    o.ignore_end = true;
    o.stop = stop;
    o.n_stop = 1;
    o.text = count_at_text;
    o.user = c;
    return o;
}

static void check_generation(kvant_context_policy policy, int32_t n_ctx) {
    static const char *const stop[] = {"\x01 never"};
    kvant_model *m = fixture_open(FIXTURE_DATA "tiny4.gguf", 2);
    kvant_session_options so = KVANT_SESSION_OPTIONS_INIT;
    so.n_ctx = n_ctx;
    kvant_session *s = fixture_session(m, so);
    kvant_sampler *sampler = open_sampler(m);
    counts c = {0};
    kvant_generate_options o = counting_options(&c, stop);
    o.context = policy;
    o.n_keep = 4;
    kvant_token prompt[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++) prompt[i] = fixture_token(m, i);
    kvant_generate_result r = KVANT_GENERATE_RESULT_INIT;
    fixture_check(kvant_generate(s, 0, sampler, prompt, PROMPT, &o, &r));
    assert_int_equal(r.n_generated, STEPS);
    assert_true(policy == KVANT_CONTEXT_STOP || r.n_shifts > 0);
    assert_true(c.n_pieces > STEPS / 4);
    /* the first shift makes the plan for turned spans, the only memory it may take */
    if (policy == KVANT_CONTEXT_STOP) assert_int_equal(c.last - c.first, 0);
    kvant_sampler_close(sampler);
    kvant_session_close(s);
    kvant_model_close(m);
}

static void test_generation(void **state) {
    (void)state;
    check_generation(KVANT_CONTEXT_STOP, PROMPT + STEPS + 10);
}

static void test_generation_with_shifts(void **state) {
    (void)state;
    check_generation(KVANT_CONTEXT_SHIFT, PROMPT + 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_sequence),           cmocka_unit_test(test_turned_spans),
        cmocka_unit_test(test_four_sequences),         cmocka_unit_test(test_generation),
        cmocka_unit_test(test_generation_with_shifts),
    };
    return cmocka_run_group_tests_name("no allocation", tests, NULL, NULL);
}
