/* report.h: the two blocks around a generation on stderr: what runs, and how fast it was. */
#pragma once

#include "runtime.h"

/* Model, context, threads, kernels, KV table, memory; `context` is the policy when it is full. */
void cli_report_start(const cli_runtime *r, const char *context);
/* A line for each device, where there are several. */
void cli_report_devices(const cli_runtime *r, void (*put)(const char *format, ...));
/* The KV table alone; through `put`, a line at a time. */
void cli_report_kv(const cli_runtime *r, void (*put)(const char *format, ...));

/* What runs where, of decoding and of a full batch: a line for each node. */
kvant_status cli_report_plan(const cli_runtime *r, void (*put)(const char *format, ...));

/* Figures of one or several generations. */
typedef struct cli_totals {
    int64_t n_prompt, n_cached, n_generated, n_shifts;
    double prefill_seconds, decode_seconds;
    double kv_tokens_read; /* sum over generated tokens of the tokens in the cache */
    int64_t n_replies;
} cli_totals;
void cli_totals_add(cli_totals *t, const kvant_generate_result *result, int64_t n_in_cache);

/* Load, prefill, decode, GB/s against the bandwidth of the memory, which is measured here if anyone hears of
 * it; memory. */
void cli_report_end(const cli_runtime *r, const cli_totals *t);
/* What of the prompt was left out, if anything. */
void cli_report_trim(const kvant_generate_result *result);
/* One line about a generation: why it ended, speed, shifts. */
void cli_report_reply(const kvant_generate_result *result);

/* The most memory that the process has had, in MiB; 0 where that is not known. */
double cli_peak_rss_mib(void);
/* Bytes that decoding one token reads: the weights, and the cache of `n_tokens` tokens. */
double cli_bytes_per_token(const kvant_session_info *info, double n_tokens);
