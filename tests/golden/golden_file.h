/* golden_file.h: reads the golden files of tests/data (format: tools/golden/README.md) for the tests in this
 * folder.
 *
 * A reader walks over one file, prompt by prompt; what is not as the format says ends the test. The numbers
 * come from an independent forward pass in float64.
 */
#ifndef KV_TESTS_GOLDEN_FILE_H
#define KV_TESTS_GOLDEN_FILE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kvant.h"

enum { GOLDEN_MAX_STEPS = 4 };

/* Appends n_tokens, or drops the positions [first, end) where tokens is NULL. */
typedef struct golden_step {
    kvant_token *tokens;
    int32_t n_tokens;
    int32_t first, end;
} golden_step;

/* The likeliest token after a prefix, and how far its logit is ahead of the second. */
typedef struct golden_choice {
    kvant_token token;
    double logit, margin;
} golden_choice;

typedef struct golden_prompt {
    char name[64];
    int32_t n_ctx; /* 0 = any that is large enough */
    golden_step steps[GOLDEN_MAX_STEPS];
    int32_t n_steps;
    int32_t n_vocab, n_top, n_other; /* listed: n_top likeliest, then n_other of the rest */
    double lse;
    kvant_token *ids; /* n_top + n_other */
    double *logits;
    golden_choice *greedy;
    int32_t n_greedy;
} golden_prompt;

static inline FILE *golden_open(const char *path, const char *magic) {
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s: cannot be opened", path);
    char kind[32], model[128];
    int version = 0;
    assert_int_equal(fscanf(file, "%31s %d model %127s", kind, &version, model), 3);
    assert_string_equal(kind, magic);
    assert_int_equal(version, 1);
    return file;
}

static inline void *golden_array(size_t n, size_t bytes) {
    void *array = calloc(n ? n : 1, bytes);
    assert_non_null(array);
    return array;
}

static inline kvant_token *golden_read_tokens(FILE *file, int32_t n) {
    kvant_token *tokens = golden_array((size_t)n, sizeof(*tokens));
    for (int32_t i = 0; i < n; i++) assert_int_equal(fscanf(file, "%d", &tokens[i]), 1);
    return tokens;
}

static inline void golden_read_step(FILE *file, golden_step *step) {
    char word[8];
    assert_int_equal(fscanf(file, "%7s", word), 1);
    if (!strcmp(word, "drop")) {
        assert_int_equal(fscanf(file, "%d %d", &step->first, &step->end), 2);
        return;
    }
    assert_string_equal(word, "eval");
    assert_int_equal(fscanf(file, "%d", &step->n_tokens), 1);
    step->tokens = golden_read_tokens(file, step->n_tokens);
}

static inline void golden_read_logits(FILE *file, golden_prompt *p) {
    int n = fscanf(file, " logits n_vocab %d lse %lf n_top %d n_other %d", &p->n_vocab, &p->lse, &p->n_top,
                   &p->n_other);
    assert_int_equal(n, 4);
    int32_t n_listed = p->n_top + p->n_other;
    p->ids = golden_array((size_t)n_listed, sizeof(*p->ids));
    p->logits = golden_array((size_t)n_listed, sizeof(*p->logits));
    for (int32_t i = 0; i < n_listed; i++) {
        assert_int_equal(fscanf(file, "%d %lf", &p->ids[i], &p->logits[i]), 2);
        assert_in_range(p->ids[i], 0, p->n_vocab - 1);
    }
}

static inline void golden_read_greedy(FILE *file, golden_prompt *p) {
    assert_int_equal(fscanf(file, " greedy %d", &p->n_greedy), 1);
    p->greedy = golden_array((size_t)p->n_greedy, sizeof(*p->greedy));
    for (int32_t i = 0; i < p->n_greedy; i++) {
        golden_choice *c = &p->greedy[i];
        assert_int_equal(fscanf(file, "%d %lf %lf", &c->token, &c->logit, &c->margin), 3);
    }
}

/* False at the end of the file. */
static inline bool golden_read_prompt(FILE *file, golden_prompt *p) {
    memset(p, 0, sizeof(*p));
    char word[8];
    assert_int_equal(fscanf(file, "%7s", word), 1);
    if (!strcmp(word, "end")) return false;
    assert_string_equal(word, "prompt");
    assert_int_equal(fscanf(file, "%63s n_ctx %d n_steps %d", p->name, &p->n_ctx, &p->n_steps), 3);
    assert_in_range(p->n_steps, 1, GOLDEN_MAX_STEPS);
    for (int32_t i = 0; i < p->n_steps; i++) golden_read_step(file, &p->steps[i]);
    golden_read_logits(file, p);
    golden_read_greedy(file, p);
    return true;
}

static inline void golden_clear_prompt(golden_prompt *p) {
    for (int32_t i = 0; i < p->n_steps; i++) free(p->steps[i].tokens);
    free(p->ids);
    free(p->logits);
    free(p->greedy);
}

/* Opens a model of tests/data or the model cache. A missing optional one skips the test, as does an
 * instruction set that the machine lacks; any other failure ends it. */
static inline kvant_model *golden_open_model(const char *path, bool optional, const char *cpu_mask) {
    FILE *file = fopen(path, "rb");
    if (!file && optional) {
        print_message("skipped: %s is not there (./dev fetch gets it)\n", path);
        skip();
    }
    if (!file) fail_msg("%s is not there (./dev fetch gets it)", path);
    fclose(file);
    kvant_model_options options = KVANT_MODEL_OPTIONS_INIT;
    options.cpu_mask = cpu_mask;
    kvant_model *model = NULL;
    kvant_status status = kvant_model_open(&model, path, &options);
    if (status == KVANT_UNSUPPORTED && cpu_mask) {
        print_message("skipped: %s\n", kvant_last_error());
        skip();
    }
    if (status) fail_msg("%s: %s", path, kvant_last_error());
    return model;
}

static inline double golden_log_sum_exp(const float *row, int32_t n) {
    double max = (double)row[0], sum = 0;
    for (int32_t i = 1; i < n; i++) max = fmax(max, (double)row[i]);
    for (int32_t i = 0; i < n; i++) sum += exp((double)row[i] - max);
    return max + log(sum);
}

static inline void golden_check(kvant_status status) {
    if (status) fail_msg("%s: %s", kvant_status_text(status), kvant_last_error());
}

#endif
