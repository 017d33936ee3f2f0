/* bench_shift.c: method: a sequence of `depth` tokens loses the DROPPED oldest behind the first KEPT again
 * and again, so that the same cells are moved every time. After 1, 10 and 100 times PROBES more tokens are
 * read, and their logits compared with those of an f32 cache: one that went through the same (kl_replay), and
 * one that has read nothing but the tokens that are left (kl_reread). The two differ by what deeper layers
 * remember. extra_kib is what the process has grown by during the shifts, allocs what they allocated. */
#include "bench_shift.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "cli.h"
#include "console.h"
#include "input.h"
#include "runtime.h"
#include "statistics.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { KEPT = 4, DROPPED = 4, PROBES = 32, N_CHECKS = 3, LEAST_DEPTH = 512, DEFAULT_DEPTH = 1024 };
static const int32_t checks[N_CHECKS] = {1, 10, 100};

typedef enum shift_mode { LAZY, EAGER, REREAD } shift_mode;
static const char *const mode_names[] = {"lazy", "eager", "reread"};

typedef struct shift_bench {
    const cli_options *options;
    cli_runtime runtime;
    kvant_token *tokens; /* depth + PROBES */
    int32_t depth;
    float *replay, *reread; /* of the f32 caches: checks x PROBES x n_vocab */
} shift_bench;

/* One way of one type, up to the check at hand. */
typedef struct shift_run {
    const char *type_k, *type_v;
    shift_mode mode;
    double seconds[100];
    int32_t n_shifts, n_timed;
    int64_t n_allocs, extra_bytes;
    float *keep; /* the logits go here; NULL: they are compared */
} shift_run;

static int64_t resident_bytes(void) {
    long size = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    int n = fscanf(f, "%ld %ld", &size, &pages);
    fclose(f);
    return n == 2 ? (int64_t)pages * sysconf(_SC_PAGESIZE) : 0;
}

static kvant_status read_tokens(shift_bench *b, int32_t from, int32_t n, kvant_logits_mode logits) {
    kvant_chunk chunk = {.tokens = b->tokens + from, .n_tokens = n, .logits = logits};
    return kvant_eval(b->runtime.session, &chunk, 1);
}

/* What is left after all shifts so far, from nothing. */
static kvant_status read_again(shift_bench *b, const shift_run *r) {
    int32_t from = KEPT + r->n_shifts * DROPPED;
    kvant_status status = kvant_seq_clear(b->runtime.session, 0);
    if (!status) status = read_tokens(b, 0, KEPT, KVANT_LOGITS_NONE);
    return status ? status : read_tokens(b, from, b->depth - from, KVANT_LOGITS_NONE);
}

/* Shifts up to the next check, each timed; a re-read happens there only. */
static kvant_status shift(shift_bench *b, shift_run *r, int32_t n_shifts) {
    kvant_status status = KVANT_OK;
    int64_t n_allocs = kv_alloc_count(), bytes = resident_bytes();
    for (r->n_timed = 0; r->n_shifts < n_shifts && !status;) {
        if (r->mode == REREAD) r->n_shifts = n_shifts - 1;
        r->n_shifts++;
        int64_t start = kv_now_ns();
        status = r->mode == REREAD ? read_again(b, r)
                                   : kvant_seq_drop(b->runtime.session, 0, KEPT, KEPT + DROPPED);
        r->seconds[r->n_timed++] = kv_seconds_since(start);
    }
    r->n_allocs += kv_alloc_count() - n_allocs;
    r->extra_bytes += resident_bytes() - bytes;
    return status;
}

static double mean_divergence(const shift_bench *b, const float *base, const float *rows) {
    size_t n_vocab = (size_t)b->runtime.info.n_vocab;
    double sum = 0;
    for (size_t i = 0; i < PROBES; i++) {
        const float *p = base + i * n_vocab, *q = rows + i * n_vocab;
        int32_t n = b->runtime.info.n_vocab;
        sum += cli_divergence(p, cli_log_sum_exp(p, n, NULL), q, cli_log_sum_exp(q, n, NULL), n);
    }
    return sum / PROBES;
}

static void print_check(const shift_bench *b, shift_run *r, double kl_replay, double kl_reread) {
    double median = cli_median(r->seconds, (size_t)r->n_timed), most = r->seconds[r->n_timed - 1];
    const char *format =
        strcmp(b->options->output_format, "json") == 0
            ? "{\"engine\": \"kvant\", \"test\": \"shift\", \"mode\": \"%s\", \"depth\": %d, \"type_k\": "
              "\"%s\", "
              "\"type_v\": \"%s\", \"threads\": %d, \"shifts\": %d, \"median_us\": %.1f, \"max_us\": %.1f, "
              "\"allocs\": %lld, \"extra_kib\": %lld, \"kl_replay\": %.6f, \"kl_reread\": %.6f}\n"
            : "%-7s %6d  %-7s %-7s %7d %6d %11.1f %11.1f %7lld %9lld %10.6f %10.6f\n";
    printf(format, mode_names[r->mode], b->depth, r->type_k, r->type_v, b->runtime.info.n_threads,
           r->n_shifts, median * 1e6, most * 1e6, (long long)r->n_allocs, (long long)(r->extra_bytes / 1024),
           kl_replay, kl_reread);
    fflush(stdout);
}

/* Reads the probes behind what is left, and takes them back. */
static kvant_status probe(shift_bench *b, shift_run *r, int32_t check) {
    size_t n = (size_t)PROBES * (size_t)b->runtime.info.n_vocab;
    int64_t end = kvant_seq_end(b->runtime.session, 0);
    kvant_status status = read_tokens(b, b->depth, PROBES, KVANT_LOGITS_ALL);
    if (status) return status;
    const float *rows = kvant_logits(b->runtime.session, 0);
    if (r->keep)
        memcpy(r->keep + (size_t)check * n, rows, n * sizeof *rows);
    else
        print_check(b, r, mean_divergence(b, b->replay + (size_t)check * n, rows),
                    mean_divergence(b, b->reread + (size_t)check * n, rows));
    return kvant_seq_remove(b->runtime.session, 0, end, -1);
}

static int run(shift_bench *b, shift_run r) {
    kvant_session_options s = cli_session_options(b->options);
    s.n_ctx = b->depth + PROBES;
    s.type_k = r.type_k;
    s.type_v = r.type_v;
    s.shift = r.mode == EAGER ? KVANT_SHIFT_EAGER : KVANT_SHIFT_LAZY;
    int exit_status = cli_runtime_open_session(&b->runtime, &s);
    if (exit_status) return exit_status;
    kvant_status status = read_tokens(b, 0, b->depth, KVANT_LOGITS_NONE);
    for (int32_t i = 0; i < N_CHECKS && !status; i++) {
        status = shift(b, &r, checks[i]);
        if (!status) status = probe(b, &r, i);
    }
    exit_status = status ? cli_failed(status) : CLI_DONE;
    kvant_session_close(b->runtime.session);
    b->runtime.session = NULL;
    return exit_status;
}

/* ---- what is measured ---- */

/* --file, or tokens without meaning. */
static int fill_tokens(shift_bench *b) {
    int32_t n = b->depth + PROBES, n_vocab = b->runtime.info.n_vocab;
    cli_text text = {0};
    size_t n_tokens = 0;
    if (b->options->file) {
        int status = cli_text_read(&text, b->options->file);
        if (!status)
            status = cli_tokenize(&b->tokens, &n_tokens, b->runtime.model, text.at, text.n_bytes,
                                  KVANT_TOKENIZE_PLAIN);
        cli_text_clear(&text);
        if (!status && n_tokens < (size_t)n)
            status =
                cli_wrong("%s: %zu tokens, not the %d that are asked for", b->options->file, n_tokens, n);
        return status;
    }
    kv_random random;
    kv_random_init(&random, (uint64_t)b->options->seed);
    b->tokens = kv_alloc((size_t)n, sizeof *b->tokens);
    if (!b->tokens) return cli_failed(KVANT_NO_MEMORY);
    for (int32_t i = 0; i < n; i++) b->tokens[i] = (kvant_token)(kv_random_unit(&random) * (n_vocab - 1));
    return CLI_DONE;
}

static int measure_depth(shift_bench *b) {
    size_t n = (size_t)N_CHECKS * PROBES * (size_t)b->runtime.info.n_vocab;
    b->replay = kv_alloc(n, sizeof *b->replay);
    b->reread = kv_alloc(n, sizeof *b->reread);
    int status = b->replay && b->reread ? fill_tokens(b) : cli_failed(KVANT_NO_MEMORY);
    if (!status)
        status = run(b, (shift_run){.type_k = "f32", .type_v = "f32", .mode = LAZY, .keep = b->replay});
    if (!status)
        status = run(b, (shift_run){.type_k = "f32", .type_v = "f32", .mode = REREAD, .keep = b->reread});
    for (int32_t k = 0; k < b->options->bench_types_k.n && !status; k++)
        for (shift_mode mode = LAZY; mode <= REREAD && !status; mode++)
            status = run(b, (shift_run){.type_k = b->options->bench_types_k.at[k],
                                        .type_v = b->options->bench_types_v.at[0],
                                        .mode = mode});
    kv_free(b->replay);
    kv_free(b->reread);
    kv_free(b->tokens);
    b->replay = b->reread = NULL;
    b->tokens = NULL;
    return status;
}

int cli_bench_shift(const cli_options *options) {
    cli_numbers depths = options->bench_depths;
    cli_options opened = *options;
    shift_bench b = {.options = options};
    if (cli_options_origin(options, &options->bench_depths) == CLI_DEFAULT)
        depths = (cli_numbers){.at = {DEFAULT_DEPTH}, .n = 1};
    for (int32_t i = 0; i < depths.n; i++)
        if (depths.at[i] < LEAST_DEPTH || depths.at[i] > INT32_MAX - PROBES)
            return cli_wrong("--n-depth %d: --shift drops %d of the tokens, so there must be %d",
                             depths.at[i], checks[N_CHECKS - 1] * DROPPED, LEAST_DEPTH);
    opened.n_threads = options->bench_threads.at[0];
    int status = cli_runtime_open_model(&b.runtime, &opened, false);
    if (!status && strcmp(options->output_format, "text") == 0)
        printf("%-7s %6s  %-7s %-7s %7s %6s %11s %11s %7s %9s %10s %10s\n", "mode", "depth", "type_k",
               "type_v", "threads", "shifts", "median_us", "max_us", "allocs", "extra_kib", "kl_replay",
               "kl_reread");
    for (int32_t i = 0; i < depths.n && !status; i++) {
        b.depth = depths.at[i];
        status = measure_depth(&b);
    }
    cli_runtime_close(&b.runtime);
    return status;
}
