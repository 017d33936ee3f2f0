/* cmd_perplexity.c: windows of a text, each on an empty cache; what stands in the second half of a window is
 * predicted from all that stands before it there. The mean negative log likelihood gives the perplexity; a
 * saved run of the same windows gives the KL divergence of this run from it. With --context the text is one
 * stream instead: stream.h.
 *
 * Logits are asked for in pieces (cli_logits_rows), so that memory does not grow with the vocabulary.
 */
#include "base/memory.h"
#include "cli.h"
#include "console.h"
#include "input.h"
#include "interrupt.h"
#include "logits_file.h"
#include "runtime.h"
#include "statistics.h"
#include "stream.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct measurement {
    cli_runtime runtime;
    kvant_token *tokens;
    size_t n_tokens;
    cli_logits_header plan; /* windows to take */
    cli_logits_writer *save;
    cli_logits_reader *base;
    float *base_logits; /* n_vocab */
    cli_mean nll, base_nll, nll_difference, kl;
    int64_t n_agree; /* predictions whose likeliest token is the base's */
    int64_t n_rows;  /* predictions so far */
} measurement;

static kvant_status score_row(measurement *m, const float *logits, kvant_token next) {
    int32_t n = m->plan.n_vocab, best, base_best;
    double norm = cli_log_sum_exp(logits, n, &best), nll = norm - (double)logits[next];
    cli_mean_add(&m->nll, nll);
    if (m->base) {
        cli_logits_read(m->base, m->n_rows, m->base_logits);
        double base_norm = cli_log_sum_exp(m->base_logits, n, &base_best);
        double base_nll = base_norm - (double)m->base_logits[next];
        cli_mean_add(&m->base_nll, base_nll);
        cli_mean_add(&m->nll_difference, nll - base_nll);
        cli_mean_add(&m->kl, cli_divergence(m->base_logits, base_norm, logits, norm, n));
        m->n_agree += best == base_best;
    }
    m->n_rows++;
    return m->save ? cli_logits_write(m->save, logits) : KVANT_OK;
}

static kvant_status eval(measurement *m, const kvant_token *tokens, int32_t n, kvant_logits_mode logits) {
    kvant_chunk chunk = {.tokens = tokens, .n_tokens = n, .logits = logits};
    return n ? kvant_eval(m->runtime.session, &chunk, 1) : KVANT_OK;
}

/* window = n_window tokens; the logits at position i predict the token at i + 1. */
static kvant_status score_window(measurement *m, const kvant_token *window) {
    int32_t end = m->plan.n_window - 1, at = end - m->plan.n_scored;
    int32_t most = cli_logits_rows(m->plan.n_vocab);
    kvant_status status = kvant_seq_clear(m->runtime.session, 0);
    if (!status) status = eval(m, window, at, KVANT_LOGITS_NONE);
    while (!status && at < end) {
        int32_t n = end - at < most ? end - at : most;
        status = eval(m, window + at, n, KVANT_LOGITS_ALL);
        for (int32_t i = 0; i < n && !status; i++)
            status = score_row(m, kvant_logits(m->runtime.session, i), window[at + i + 1]);
        at += n;
    }
    return status;
}

static void report_chunk(const measurement *m, int32_t chunk) {
    double ppl = exp(m->nll.mean);
    if (m->base)
        cli_note("chunk %d of %d: perplexity %.4f, mean KL %.6f, top-1 agreement %.2f %%", chunk + 1,
                 m->plan.n_chunks, ppl, m->kl.mean, 100.0 * (double)m->n_agree / (double)m->n_rows);
    else
        cli_note("chunk %d of %d: perplexity %.4f +- %.4f", chunk + 1, m->plan.n_chunks, ppl,
                 ppl * cli_mean_error(&m->nll));
}

static int score_all(measurement *m) {
    kvant_token *window = kv_alloc((size_t)m->plan.n_window, sizeof *window);
    if (!window) return cli_failed(KVANT_NO_MEMORY);
    kvant_status status = KVANT_OK;
    for (int32_t c = 0; c < m->plan.n_chunks && !status; c++) {
        memcpy(window, m->tokens + (size_t)c * (size_t)m->plan.n_window,
               (size_t)m->plan.n_window * sizeof *window);
        if (m->plan.has_bos) window[0] = kvant_token_bos(m->runtime.model);
        status = score_window(m, window);
        if (!status) report_chunk(m, c);
    }
    kv_free(window);
    return status ? cli_failed(status) : CLI_DONE;
}

/* Of the row that has most. */
static int32_t centre_pairs(const cli_runtime *r) {
    int32_t most = 0;
    for (int32_t i = 0; i < r->session_info.n_kv_rows; i++) {
        kvant_kv_row row = KVANT_KV_ROW_INIT;
        if (!kvant_session_kv_row(r->session, i, &row) && row.centre_pairs > most) most = row.centre_pairs;
    }
    return most;
}

static void print_results(const measurement *m) {
    double ppl = exp(m->nll.mean);
    printf("perplexity %.4f +- %.4f\n", ppl, ppl * cli_mean_error(&m->nll));
    printf("predictions %lld in %d windows of %d\n", (long long)m->n_rows, m->plan.n_chunks,
           m->plan.n_window);
    printf("cache %lld bytes per token, %d centred pairs\n",
           (long long)m->runtime.session_info.kv_bytes_per_token, centre_pairs(&m->runtime));
    if (!m->base) return;
    double ratio = exp(m->nll_difference.mean), agree = (double)m->n_agree / (double)m->n_rows;
    printf("base perplexity %.4f\n", exp(m->base_nll.mean));
    printf("perplexity ratio %.6f +- %.6f\n", ratio, ratio * cli_mean_error(&m->nll_difference));
    printf("mean KL divergence %.8f +- %.8f\n", m->kl.mean, cli_mean_error(&m->kl));
    printf("maximum KL divergence %.6f\n", m->kl.most);
    printf("top-1 agreement %.3f %% +- %.3f\n", 100 * agree,
           100 * sqrt(agree * (1 - agree) / (double)(m->n_rows > 1 ? m->n_rows - 1 : 1)));
}

/* ---- what is measured ---- */

/* Windows from the flags, or those of the base, which must be of this text. */
static int plan_windows(measurement *m, const cli_options *options) {
    const cli_logits_header *base = m->base ? cli_logits_get_header(m->base) : NULL;
    int32_t n_window = base ? base->n_window : options->n_window;
    int64_t n_most = (int64_t)m->n_tokens / n_window;
    int64_t n_chunks = base ? base->n_chunks : options->n_chunks ? options->n_chunks : n_most;
    if (n_chunks < 1 || n_chunks > n_most)
        return cli_wrong("the text has %zu tokens: %lld windows of %d, not %lld", m->n_tokens,
                         (long long)n_most, n_window, (long long)(n_chunks < 1 ? 1 : n_chunks));
    if (n_chunks > INT32_MAX) n_chunks = INT32_MAX;
    m->plan = (cli_logits_header){.version = CLI_LOGITS_VERSION,
                                  .n_vocab = m->runtime.info.n_vocab,
                                  .n_window = n_window,
                                  .n_chunks = (int32_t)n_chunks,
                                  .n_scored = n_window - 1 - n_window / 2,
                                  .has_bos = options->bos || (base && base->has_bos)};
    memcpy(m->plan.magic, CLI_LOGITS_MAGIC, sizeof m->plan.magic);
    if (m->plan.has_bos && kvant_token_bos(m->runtime.model) < 0)
        return cli_wrong("--bos: the model has no such token");
    if (!base) return CLI_DONE;
    if (memcmp(base, &m->plan, sizeof *base) != 0)
        return cli_wrong("%s: saved with %d tokens in the vocabulary and %s, not %d and %s",
                         options->compare_logits, base->n_vocab, base->has_bos ? "--bos" : "no --bos",
                         m->plan.n_vocab, m->plan.has_bos ? "--bos" : "no --bos");
    if (memcmp(cli_logits_tokens(m->base), m->tokens,
               (size_t)n_chunks * (size_t)n_window * sizeof *m->tokens) != 0)
        return cli_wrong("%s: saved from another text, or another vocabulary", options->compare_logits);
    return CLI_DONE;
}

static int open_base(measurement *m, const cli_options *options) {
    if (!options->compare_logits) return CLI_DONE;
    kvant_status status = cli_logits_open(&m->base, options->compare_logits);
    if (status) return cli_failed(status);
    m->base_logits = kv_alloc((size_t)m->runtime.info.n_vocab, sizeof *m->base_logits);
    return m->base_logits ? CLI_DONE : cli_failed(KVANT_NO_MEMORY);
}

static int open_session(measurement *m, const cli_options *options) {
    kvant_session_options s = cli_session_options(options);
    s.n_ctx = m->plan.n_window;
    return cli_runtime_open_session(&m->runtime, &s);
}

static int open_save(measurement *m, const cli_options *options) {
    if (!options->save_logits) return CLI_DONE;
    kvant_status status = cli_logits_create(&m->save, options->save_logits, &m->plan, m->tokens);
    return status ? cli_failed(status) : CLI_DONE;
}

static int commit_save(measurement *m) {
    kvant_status status = m->save ? cli_logits_commit(m->save) : KVANT_OK;
    return status ? cli_failed(status) : CLI_DONE;
}

static int measure_windows(measurement *m, const cli_options *options) {
    int status = open_base(m, options);
    if (!status) status = plan_windows(m, options);
    if (!status) status = open_session(m, options);
    if (!status) status = open_save(m, options);
    if (!status) status = score_all(m);
    if (!status) status = commit_save(m);
    if (!status) print_results(m);
    return status;
}

/* A stream has no windows that could be saved or compared. */
static int check_options(const cli_options *options) {
    if (!options->file) return cli_wrong("--file names the text; kvant perplexity --help");
    if (options->context && (options->save_logits || options->compare_logits))
        return cli_wrong("--context reads the text as one stream: not with --save-logits, --kl-divergence");
    return CLI_DONE;
}

int cli_run_perplexity(const cli_options *options) {
    measurement m = {0};
    cli_text text = {0};
    int status = check_options(options);
    if (!status) status = cli_text_from_options(&text, options);
    if (!status) status = cli_runtime_open_model(&m.runtime, options, false);
    if (!status)
        status = cli_tokenize(&m.tokens, &m.n_tokens, m.runtime.model, text.at, text.n_bytes,
                              KVANT_TOKENIZE_PLAIN);
    if (!status)
        status = options->context ? cli_stream_perplexity(&m.runtime, m.tokens, m.n_tokens, options)
                                  : measure_windows(&m, options);
    cli_logits_writer_close(m.save);
    cli_logits_reader_close(m.base);
    kv_free(m.base_logits);
    kv_free(m.tokens);
    cli_text_clear(&text);
    cli_runtime_close(&m.runtime);
    return status;
}
