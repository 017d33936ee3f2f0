/* cmd_run.c: one prompt, one answer. stdout carries the answer and nothing else. */
#include "base/memory.h"
#include "cli.h"
#include "console.h"
#include "input.h"
#include "interrupt.h"
#include "kvant_tools.h"
#include "report.h"
#include "saved.h"

#include <string.h>
#include <unistd.h>

/* Whether the file says how messages are written; a base model's does not. */
static int find_template(bool *has_template, const char *model) {
    kvant_file *file = NULL;
    kvant_status status = kvant_file_open(&file, model);
    if (status) return cli_failed(status);
    *has_template = kvant_file_find_value(file, "tokenizer.chat_template") >= 0;
    kvant_file_close(file);
    return CLI_DONE;
}

typedef struct answer {
    bool failed;    /* stdout did not take it */
    bool ends_line; /* the last byte was a newline */
} answer;

static bool put_text(void *user, const char *text, size_t n_bytes) {
    answer *a = user;
    if (n_bytes) a->ends_line = text[n_bytes - 1] == '\n';
    a->failed = !cli_write(text, n_bytes);
    return !a->failed;
}

/* Saves what an answer, or what there is of it, has left behind. */
static kvant_status keep_session(const cli_runtime *r, const cli_options *options, const kvant_chat *chat,
                                 kvant_status status) {
    if (!options->session || (status && status != KVANT_CANCELLED)) return status;
    kvant_status saved =
        chat ? kvant_chat_save(chat, options->session) : kvant_seq_save(r->session, 0, options->session);
    return saved ? saved : status;
}

static kvant_status generate_raw(cli_runtime *r, const cli_options *options, const cli_text *text,
                                 const kvant_generate_options *g, kvant_generate_result *result,
                                 int *exit_status) {
    kvant_token *tokens = NULL;
    size_t n = 0;
    int flags = KVANT_TOKENIZE_BOS_EOS | (options->special ? KVANT_TOKENIZE_SPECIAL : 0);
    *exit_status = cli_tokenize(&tokens, &n, r->model, text->at, text->n_bytes, flags);
    size_t n_reused = 0;
    if (!*exit_status && options->session)
        *exit_status = cli_saved_reuse(r, options->session, tokens, n, &n_reused);
    kvant_status status = KVANT_OK;
    if (!*exit_status) {
        status = kvant_generate(r->session, 0, r->sampler, tokens + n_reused, n - n_reused, g, result);
        result->n_prompt += (int32_t)n_reused;
        result->n_cached += (int32_t)n_reused;
        result->trim_begin += (int32_t)n_reused;
        status = keep_session(r, options, NULL, status);
    }
    kv_free(tokens);
    return status;
}

/* The conversation that was saved, or a new one. */
static kvant_status open_conversation(kvant_chat *chat, const cli_options *options) {
    if (options->session && cli_saved_exists(options->session)) {
        if (options->system) cli_note("note: the saved conversation has its own system message, if any");
        return kvant_chat_load(chat, options->session);
    }
    return options->system ? kvant_chat_add(chat, "system", options->system) : KVANT_OK;
}

static kvant_status generate_reply(cli_runtime *r, const cli_options *options, const cli_text *text,
                                   const kvant_generate_options *g, kvant_generate_result *result) {
    kvant_chat_options chat_options = KVANT_CHAT_OPTIONS_INIT;
    chat_options.template_name = options->template_name;
    chat_options.context = g->context;
    kvant_chat *chat = NULL;
    kvant_status status = kvant_chat_create(&chat, r->session, 0, &chat_options);
    if (!status) status = open_conversation(chat, options);
    if (!status && options->session) status = cli_saved_accept(r);
    if (!status) status = kvant_chat_add(chat, "user", text->at);
    if (!status) status = kvant_chat_reply(chat, r->sampler, g, result);
    if (chat) status = keep_session(r, options, chat, status);
    kvant_chat_close(chat);
    return status;
}

static int generate(cli_runtime *r, const cli_options *options, const cli_text *text, bool raw) {
    answer a = {.ends_line = true};
    kvant_generate_options g = cli_generate_options(options);
    kvant_generate_result result = KVANT_GENERATE_RESULT_INIT;
    g.text = put_text;
    g.user = &a;
    int exit_status = CLI_DONE;
    kvant_status status = raw ? generate_raw(r, options, text, &g, &result, &exit_status)
                              : generate_reply(r, options, text, &g, &result);
    if (exit_status) return exit_status;
    if (status == KVANT_CANCELLED) result.finish = KVANT_FINISH_CANCELLED, status = KVANT_OK;
    if (status) return cli_failed(status);
    if (!a.ends_line && !a.failed && isatty(STDOUT_FILENO)) cli_write("\n", 1);
    cli_totals totals = {0};
    cli_totals_add(&totals, &result, kvant_seq_tokens(r->session, 0));
    cli_report_trim(&result);
    if (options->session)
        cli_note("session  %d of %d tokens were in the cache; %lld saved to %s", result.n_cached,
                 result.n_prompt, (long long)kvant_seq_tokens(r->session, 0), options->session);
    cli_report_end(r, &totals);
    cli_report_reply(&result);
    return CLI_DONE;
}

/* What contradicts itself, found before anything is loaded. */
static int check_options(const cli_options *options, const cli_text *text, bool raw) {
    if (raw && options->system)
        return cli_wrong("--system needs a chat template: a raw prompt has no messages");
    if (!raw && options->special)
        return cli_wrong("--special is for --raw prompts: messages are never parsed");
    if (!raw && memchr(text->at, 0, text->n_bytes))
        return cli_wrong("the prompt has a NUL at byte %zu; only a --raw prompt may", strlen(text->at));
    return CLI_DONE;
}

int cli_run_run(const cli_options *options) {
    cli_text text = {0};
    cli_runtime r = {0};
    bool has_template = false;
    cli_interrupt_watch(NULL);
    int status = cli_text_from_options(&text, options);
    if (!status && !options->raw) status = find_template(&has_template, options->model);
    bool raw = options->raw || (!has_template && !options->template_name);
    if (!status) status = check_options(options, &text, raw);
    if (!status) status = cli_runtime_open_model(&r, options, false);
    if (!status) {
        kvant_session_options s = cli_session_options(options);
        status = cli_runtime_open_session(&r, &s);
    }
    if (!status) status = cli_runtime_open_sampler(&r, options);
    if (!status) {
        cli_report_start(&r, options->context);
        if (options->dump_plan && cli_report_plan(&r, cli_note)) status = cli_failed(KVANT_FAILED);
    }
    if (!status) {
        status = generate(&r, options, &text, raw);
    }
    cli_runtime_close(&r);
    cli_text_clear(&text);
    return status;
}
