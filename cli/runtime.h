/* runtime.h: from the flags to an open model, session and sampler; and the figures about them. */
#pragma once

#include "kvant.h"
#include "options.h"

typedef struct cli_runtime {
    kvant_model *model;
    kvant_session *session;
    kvant_sampler *sampler;
    kvant_model_info info;
    kvant_session_info session_info;
    int64_t seed; /* of the sampler; the one drawn where the flag left it open */
} cli_runtime;

/* All return an exit status; what was opened is closed by cli_runtime_close. Later ones need the earlier
 * ones. */
int cli_runtime_open_model(cli_runtime *out, const cli_options *options, bool vocab_only);
int cli_runtime_open_session(cli_runtime *r, const kvant_session_options *session_options);
int cli_runtime_open_sampler(cli_runtime *r, const cli_options *options);
void cli_runtime_close(cli_runtime *r);

/* The session that --ctx-size, --cache-type-k and the like ask for. */
kvant_session_options cli_session_options(const cli_options *options);
/* What --context asks for. */
kvant_context_policy cli_context_policy(const cli_options *options);
/* The generation that --predict, --stop and the like ask for. */
kvant_generate_options cli_generate_options(const cli_options *options);

/* The tokens of a text, owned by the caller (kv_free). `flags` of kvant_tokenize. */
int cli_tokenize(kvant_token **out, size_t *n_tokens, const kvant_model *model, const char *text,
                 size_t n_bytes, int flags);
