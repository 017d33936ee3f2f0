/* cmd_bench.c: the speed of prefill and decode at given depths, for each combination of threads and cache
 * types.
 *
 * Method: pseudo-random tokens of the second quarter of the vocabulary; 64 of them to warm up; at each depth,
 * in rising order, --repetitions times n-prompt tokens at once, then n-gen tokens one at a time, removed
 * again after each time. The median counts. gb_s is what must at least be read from memory: the weights once
 * for each evaluation, and the cache of the depth; bw_share compares it with what a plain read of the memory
 * gives. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench_shift.h"
#include "cli.h"
#include "console.h"
#include "kvant_tools.h"
#include "report.h"
#include "statistics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 64 };

typedef struct bench {
    const cli_options *options;
    cli_runtime runtime;
    const char *type_k, *type_v;
    kvant_token *tokens;
    int64_t n_tokens; /* that the largest test needs */
    double bandwidth; /* bytes per second */
    double *seconds;  /* one for each repetition */
} bench;

typedef struct figure {
    const char *test;
    int32_t depth, n;
    double bytes; /* read in one repetition */
} figure;

static void print_figure(const bench *b, const figure *f) {
    size_t n_reps = (size_t)b->options->bench_reps;
    double median = cli_median(b->seconds, n_reps), least = b->seconds[0]; /* sorted now */
    double gb_s = f->bytes / median * 1e-9, share = b->bandwidth > 0 ? gb_s * 1e9 / b->bandwidth : 0;
    const char *format = strcmp(b->options->output_format, "json") == 0
                             ? "{\"engine\": \"kvant\", \"test\": \"%s\", \"depth\": %d, \"type_k\": \"%s\", "
                               "\"type_v\": \"%s\", "
                               "\"threads\": %d, \"n\": %d, \"median_s\": %.6f, \"min_s\": %.6f, \"tok_s\": "
                               "%.2f, \"rss_mib\": %.1f, "
                               "\"gb_s\": %.3f, \"bw_share\": %.4f}\n"
                             : "%-8s %6d  %-7s %-7s %7d %5d %10.6f %10.6f %10.2f %9.1f %8.3f %8.4f\n";
    printf(format, f->test, f->depth, b->type_k, b->type_v, b->runtime.info.n_threads, f->n, median, least,
           (double)f->n / median, cli_peak_rss_mib(), gb_s, share);
    fflush(stdout);
}

static kvant_status append(bench *b, int64_t at, int32_t n) {
    kvant_chunk chunk = {.tokens = b->tokens + at, .n_tokens = n, .logits = KVANT_LOGITS_LAST};
    return n ? kvant_eval(b->runtime.session, &chunk, 1) : KVANT_OK;
}

/* Times one test behind `at` tokens: n tokens in steps of `step`, taken back after each repetition. */
static kvant_status measure(bench *b, int64_t at, int32_t n, int32_t step) {
    kvant_status status = KVANT_OK;
    for (int32_t r = 0; r < b->options->bench_reps && !status; r++) {
        int64_t start = kv_now_ns();
        for (int32_t i = 0; i < n && !status; i += step) status = append(b, at + i, step);
        b->seconds[r] = kv_seconds_since(start);
        if (!status) status = kvant_seq_remove(b->runtime.session, 0, at, -1);
    }
    return status;
}

static kvant_status prefill(bench *b, int32_t depth) {
    int32_t n = b->options->bench_prompt, n_batch = b->runtime.session_info.n_batch;
    if (!n) return KVANT_OK;
    kvant_status status = measure(b, depth, n, n);
    double n_evaluations = (double)((n + n_batch - 1) / n_batch);
    figure f = {"prefill", depth, n, n_evaluations * cli_bytes_per_token(&b->runtime.session_info, depth)};
    if (!status) print_figure(b, &f);
    return status;
}

/* On an empty cache decoding starts behind one token. */
static kvant_status decode(bench *b, int32_t depth) {
    int32_t n = b->options->bench_gen, at = depth ? depth : 1;
    if (!n) return KVANT_OK;
    kvant_status status = depth ? KVANT_OK : append(b, 0, 1);
    if (!status) status = measure(b, at, n, 1);
    figure f = {"decode", depth, n, n * cli_bytes_per_token(&b->runtime.session_info, at + n / 2.0)};
    if (!status) print_figure(b, &f);
    if (!status && !depth) status = kvant_seq_clear(b->runtime.session, 0);
    return status;
}

/* `depths` rise. */
static kvant_status measure_depths(bench *b, const cli_numbers *depths) {
    int32_t warm_up = b->n_tokens < WARM_UP ? (int32_t)b->n_tokens : WARM_UP, at = 0;
    kvant_status status = append(b, 0, warm_up);
    if (!status) status = kvant_seq_clear(b->runtime.session, 0);
    for (int32_t i = 0; i < depths->n && !status; i++) {
        status = append(b, at, depths->at[i] - at);
        at = depths->at[i];
        if (!status) status = prefill(b, at);
        if (!status) status = decode(b, at);
    }
    return status;
}

static int measure_types(bench *b, const cli_numbers *depths) {
    kvant_session_options s = cli_session_options(b->options);
    s.n_ctx = (int32_t)b->n_tokens;
    s.type_k = b->type_k;
    s.type_v = b->type_v;
    int exit_status = cli_runtime_open_session(&b->runtime, &s);
    if (exit_status) return exit_status;
    cli_report_kv(&b->runtime, cli_note);
    kvant_status status = b->options->dump_plan ? cli_report_plan(&b->runtime, cli_note) : KVANT_OK;
    if (!status) status = measure_depths(b, depths);
    exit_status = status ? cli_failed(status) : CLI_DONE;
    kvant_session_close(b->runtime.session);
    b->runtime.session = NULL;
    return exit_status;
}

static int make_tokens(bench *b) {
    int32_t n_vocab = b->runtime.info.n_vocab, least = n_vocab / 4;
    kv_random random;
    kv_random_init(&random, (uint64_t)b->options->seed);
    b->tokens = kv_alloc((size_t)b->n_tokens, sizeof *b->tokens);
    b->seconds = kv_alloc((size_t)b->options->bench_reps, sizeof *b->seconds);
    if (!b->tokens || !b->seconds) return cli_failed(KVANT_NO_MEMORY);
    for (int64_t i = 0; i < b->n_tokens; i++)
        b->tokens[i] = least + (kvant_token)(kv_random_unit(&random) * (n_vocab / 2 - least));
    return CLI_DONE;
}

/* One number of threads: a model of its own, because the threads are the model's. */
static int measure_threads(bench *b, int32_t n_threads, const cli_numbers *depths) {
    cli_options options = *b->options;
    options.n_threads = n_threads;
    int status = cli_runtime_open_model(&b->runtime, &options, false);
    if (!status) status = make_tokens(b);
    if (!status && kvant_measure_bandwidth(&b->bandwidth, n_threads, 0.2)) status = cli_failed(KVANT_FAILED);
    for (int32_t k = 0; k < options.bench_types_k.n && !status; k++)
        for (int32_t v = 0; v < options.bench_types_v.n && !status; v++) {
            b->type_k = options.bench_types_k.at[k];
            b->type_v = options.bench_types_v.at[v];
            status = measure_types(b, depths);
        }
    kv_free(b->tokens);
    kv_free(b->seconds);
    b->tokens = NULL;
    b->seconds = NULL;
    cli_runtime_close(&b->runtime);
    return status;
}

static int compare(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

int cli_run_bench(const cli_options *options) {
    if (options->bench_shift) return cli_bench_shift(options);
    cli_numbers depths = options->bench_depths;
    qsort(depths.at, (size_t)depths.n, sizeof *depths.at, compare);
    int32_t longest = options->bench_prompt > options->bench_gen ? options->bench_prompt : options->bench_gen;
    bench b = {.options = options, .n_tokens = (int64_t)depths.at[depths.n - 1] + longest + 1};
    if (b.n_tokens > INT32_MAX)
        return cli_wrong("--n-depth and --n-prompt add up to more tokens than there may be");
    if (strcmp(options->output_format, "text") == 0)
        printf("%-8s %6s  %-7s %-7s %7s %5s %10s %10s %10s %9s %8s %8s\n", "test", "depth", "type_k",
               "type_v", "threads", "n", "median_s", "min_s", "tok_s", "rss_mib", "gb_s", "bw_share");
    int status = CLI_DONE;
    for (int32_t t = 0; t < options->bench_threads.n && !status; t++)
        status = measure_threads(&b, options->bench_threads.at[t], &depths);
    return status;
}
