/* stream.c: batches are as large as the policy leaves room for, and end with a stretch, so that runs with
 * other cache types compute the same batches and differ by the cache alone. */
#include "stream.h"

#include "base/clock.h"
#include "cli.h"
#include "console.h"
#include "report.h"
#include "statistics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct stream {
    cli_runtime *runtime;
    const cli_options *options;
    kvant_context_policy policy;
    const kvant_token *tokens;
    int64_t n_tokens, at; /* next to be read */
    cli_mean nll;         /* of the stretch */
    cli_mean total;
} stream;

int32_t cli_logits_rows(int32_t n_vocab) {
    int32_t rows = (64 << 20) / (int32_t)sizeof(float) / n_vocab;
    return rows > 1 ? rows : 1;
}

/* Tokens for the next evaluation, up to `end`: as many as are free, and where none are, as the policy frees.
 */
static kvant_status next_batch(const stream *s, int64_t end, int32_t *n) {
    const kvant_session *session = s->runtime->session;
    int64_t room = s->options->n_window - kvant_seq_tokens(session, 0);
    int64_t most = cli_logits_rows(s->runtime->info.n_vocab);
    kvant_status status = KVANT_OK;
    if (room < 1) {
        status = kvant_seq_make_room(s->runtime->session, 0, 1, s->policy, s->options->n_keep, NULL);
        room = s->options->n_window - kvant_seq_tokens(session, 0);
    }
    if (room > most) room = most;
    *n = (int32_t)(end - s->at < room ? end - s->at : room);
    return status;
}

static kvant_status read_batch(stream *s, int64_t end) {
    int32_t n, n_vocab = s->runtime->info.n_vocab;
    kvant_status status = next_batch(s, end, &n);
    kvant_chunk chunk = {.tokens = s->tokens + s->at, .n_tokens = n, .logits = KVANT_LOGITS_ALL};
    if (!status) status = kvant_eval(s->runtime->session, &chunk, 1);
    for (int32_t i = 0; i < n && !status && s->at + i + 1 < s->n_tokens; i++) {
        const float *logits = kvant_logits(s->runtime->session, i);
        double nll = cli_log_sum_exp(logits, n_vocab, NULL) - (double)logits[s->tokens[s->at + i + 1]];
        cli_mean_add(&s->nll, nll);
        cli_mean_add(&s->total, nll);
    }
    s->at += n;
    return status;
}

static void print_row(const stream *s, int64_t first, double seconds) {
    const cli_options *o = s->options;
    const char *format =
        strcmp(o->output_format, "json") == 0
            ? "{\"engine\": \"kvant\", \"policy\": \"%s\", \"n_ctx\": %d, \"type_k\": \"%s\", \"type_v\": "
              "\"%s\", \"first\": %lld, \"n\": %lld, \"perplexity\": %.4f, \"error\": %.4f, \"tok_s\": %.1f, "
              "\"peak_mib\": %.1f}\n"
            : "%-7s %6d  %-7s %-7s %9lld %7lld %11.4f %8.4f %9.1f %9.1f\n";
    double perplexity = exp(s->nll.mean);
    printf(format, o->context, o->n_window, o->type_k, o->type_v, (long long)first, (long long)s->nll.n,
           perplexity, perplexity * cli_mean_error(&s->nll), (double)(s->at - first) / seconds,
           cli_peak_rss_mib());
    fflush(stdout);
}

static kvant_status read_stretch(stream *s) {
    int64_t first = s->at, start = kv_now_ns();
    int64_t end = s->n_tokens - first < s->options->n_stretch ? s->n_tokens : first + s->options->n_stretch;
    kvant_status status = KVANT_OK;
    s->nll = (cli_mean){0};
    while (s->at < end && !status) status = read_batch(s, end);
    if (!status && s->nll.n) print_row(s, first, kv_seconds_since(start));
    return status;
}

int cli_stream_perplexity(cli_runtime *r, const kvant_token *tokens, size_t n_tokens,
                          const cli_options *options) {
    kvant_session_options session = cli_session_options(options);
    stream s = {.runtime = r,
                .options = options,
                .policy = cli_context_policy(options),
                .tokens = tokens,
                .n_tokens = (int64_t)n_tokens};
    if (n_tokens < 2) return cli_wrong("the text has %zu tokens: nothing to predict", n_tokens);
    session.n_ctx = options->n_window;
    int exit_status = cli_runtime_open_session(r, &session);
    if (exit_status) return exit_status;
    if (strcmp(options->output_format, "text") == 0)
        printf("%-7s %6s  %-7s %-7s %9s %7s %11s %8s %9s %9s\n", "policy", "n_ctx", "type_k", "type_v",
               "first", "n", "perplexity", "error", "tok_s", "peak_mib");
    kvant_status status = KVANT_OK;
    while (s.at < s.n_tokens && !status) status = read_stretch(&s);
    if (status) return cli_failed(status);
    cli_note("perplexity %.4f of %lld predictions", exp(s.total.mean), (long long)s.total.n);
    return CLI_DONE;
}
