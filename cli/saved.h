/* saved.h: sequences in files, for run --session, /save and /load, and inspect. What returns an int returns
 * an exit status, after a message. */
#pragma once

#include "runtime.h"

/* Whether there is a file of that name. */
bool cli_saved_exists(const char *path);
/* run --raw --session: sequence 0 becomes what was saved, cut back to what it shares with the prompt;
 * *n_reused tokens of the prompt need not be evaluated. Nothing of that name: 0. */
int cli_saved_reuse(const cli_runtime *r, const char *path, const kvant_token *tokens, size_t n_tokens,
                    size_t *n_reused);
/* The penalties of the sampler look back on what sequence 0 holds, as if it had been read just now. */
kvant_status cli_saved_accept(const cli_runtime *r);
/* /save and /load: the conversation as JSON in `path`, and the cells of it beside that, in "path.kv". Loading
 * believes the JSON: cells of another model or of other messages are left alone, with a notice, and the
 * conversation is read again. */
int cli_saved_put_chat(const cli_runtime *r, const kvant_chat *chat, const char *path);
int cli_saved_get_chat(const cli_runtime *r, kvant_chat *chat, const char *path);
/* Describes a file on stdout. */
int cli_saved_inspect(const char *path);
