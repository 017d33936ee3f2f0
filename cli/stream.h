/* stream.h: the perplexity of a text that is longer than the cache, read as one stream. */
#pragma once

#include "runtime.h"

/* Rows of logits that are asked for at once: 64 MiB of them, at least one. */
int32_t cli_logits_rows(int32_t n_vocab);

/* Reads all tokens through one sequence of --ctx cells; the policy of --context makes room. Each token but
 * the first is predicted from what the policy has left of those before it. Prints a row for each --stretch:
 * perplexity, speed, peak memory. */
int cli_stream_perplexity(cli_runtime *r, const kvant_token *tokens, size_t n_tokens,
                          const cli_options *options);
