/* cmd_chat.c: a conversation. stdout carries the replies, each ended by a newline; prompts, notices and
 * figures go to stderr. Without a terminal the same lines come from a pipe; a turn that fails there makes the
 * program fail. */
#include "cli.h"
#include "console.h"
#include "interrupt.h"
#include "line_editor.h"
#include "messages.h"
#include "report.h"
#include "saved.h"

#include <string.h>
#include <unistd.h>

typedef struct conversation {
    const cli_options *options;
    cli_runtime runtime;
    kvant_chat *chat;
    cli_totals totals;
    int32_t n_dropped; /* messages that fell out of the context, as last told */
    bool ends;         /* /exit */
} conversation;

static bool put_text(void *user, const char *text, size_t n_bytes) {
    (void)user;
    return cli_write(text, n_bytes);
}

static int32_t count_dropped(const kvant_chat *chat) {
    int32_t n = 0;
    for (int32_t i = 0; i < kvant_chat_count(chat); i++) {
        const char *role, *text;
        bool in_context = true;
        if (!kvant_chat_message(chat, i, &role, &text, &in_context) && !in_context) n++;
    }
    return n;
}

static void tell_dropped(conversation *c) {
    int32_t n = count_dropped(c->chat);
    if (n > c->n_dropped)
        cli_note("[the context is full: the oldest %d %s no longer seen]", n,
                 n == 1 ? "message is" : "messages are");
    c->n_dropped = n;
}

/* Generates and shows the next reply; a failure leaves the conversation without it. */
static int reply(conversation *c) {
    kvant_generate_options g = cli_generate_options(c->options);
    kvant_generate_result result = KVANT_GENERATE_RESULT_INIT;
    g.text = put_text;
    cli_interrupt_clear();
    kvant_status status = kvant_chat_reply(c->chat, c->runtime.sampler, &g, &result);
    bool cancelled = status == KVANT_CANCELLED || result.finish == KVANT_FINISH_CANCELLED;
    cli_interrupt_clear();
    if (!status || cancelled) cli_write("\n", 1);
    if (status && !cancelled) return cli_failed(status);
    cli_report_trim(&result);
    cli_totals_add(&c->totals, &result, kvant_seq_tokens(c->runtime.session, 0));
    if (cancelled)
        cli_note("[stopped]");
    else if (result.finish != KVANT_FINISH_END && result.finish != KVANT_FINISH_STOPPED)
        cli_note("[%s]", kvant_finish_text(result.finish));
    tell_dropped(c);
    return CLI_DONE;
}

static int say(conversation *c, const char *text) {
    kvant_status status = kvant_chat_add(c->chat, "user", text);
    if (status) return cli_failed(status);
    int32_t n = kvant_chat_count(c->chat);
    int exit_status = reply(c);
    if (exit_status && kvant_chat_count(c->chat) == n && kvant_chat_pop(c->chat))
        return cli_failed(KVANT_FAILED);
    return exit_status;
}

/* ---- what can be typed with a slash ---- */

static int do_help(conversation *c, const char *argument);

static int do_clear(conversation *c, const char *argument) {
    (void)argument;
    cli_messages none = {0};
    kvant_status status = cli_messages_to_chat(&none, c->chat);
    if (!status && c->options->system) status = kvant_chat_add(c->chat, "system", c->options->system);
    c->n_dropped = 0;
    return status ? cli_failed(status) : CLI_DONE;
}

static int do_regen(conversation *c, const char *argument) {
    (void)argument;
    int32_t n = kvant_chat_count(c->chat);
    const char *role = "", *text;
    bool in_context;
    if (n && kvant_chat_message(c->chat, n - 1, &role, &text, &in_context)) return cli_failed(KVANT_FAILED);
    if (strcmp(role, "assistant") != 0) return cli_wrong("/regen: there is no reply yet");
    kvant_status status = kvant_chat_pop(c->chat);
    return status ? cli_failed(status) : reply(c);
}

static int do_save(conversation *c, const char *argument) {
    if (!*argument) return cli_wrong("/save: needs a file name");
    return cli_saved_put_chat(&c->runtime, c->chat, argument);
}

static int do_load(conversation *c, const char *argument) {
    if (!*argument) return cli_wrong("/load: needs a file name");
    int exit_status = cli_saved_get_chat(&c->runtime, c->chat, argument);
    if (!exit_status) c->n_dropped = count_dropped(c->chat);
    return exit_status;
}

static int do_system(conversation *c, const char *argument) {
    cli_messages messages;
    if (cli_messages_from_chat(&messages, c->chat)) return cli_failed(KVANT_NO_MEMORY);
    kvant_status status = cli_messages_set_system(&messages, argument);
    int exit_status = status ? cli_failed(status) : CLI_DONE;
    if (!exit_status && cli_messages_to_chat(&messages, c->chat)) exit_status = CLI_FAILED;
    cli_messages_clear(&messages);
    return exit_status;
}

static int do_stats(conversation *c, const char *argument) {
    (void)argument;
    const cli_runtime *r = &c->runtime;
    cli_note("messages %d, %d of them no longer seen; template %s", kvant_chat_count(c->chat),
             count_dropped(c->chat), kvant_chat_template(c->chat));
    cli_note("context  %lld of %d tokens, %lld %s", (long long)kvant_seq_tokens(r->session, 0),
             r->session_info.n_ctx, (long long)c->totals.n_shifts,
             c->totals.n_shifts == 1 ? "shift" : "shifts");
    cli_report_kv(r, cli_note);
    if (c->totals.n_replies) cli_report_end(r, &c->totals);
    return CLI_DONE;
}

static int do_exit(conversation *c, const char *argument) {
    (void)argument;
    c->ends = true;
    return CLI_DONE;
}

static const struct slash {
    const char *name, *help;
    int (*run)(conversation *c, const char *argument);
} slashes[] = {
    {"/help", "this list", do_help},
    {"/clear", "forget the conversation", do_clear},
    {"/regen", "another reply to the last message", do_regen},
    {"/save", "FILE: keep the conversation as JSON, and what was read of it in FILE.kv", do_save},
    {"/load", "FILE: go on with a conversation that was saved", do_load},
    {"/system", "TEXT: set the system message; nothing: take it away", do_system},
    {"/stats", "context, memory, speed", do_stats},
    {"/exit", "leave; so does Ctrl-D", do_exit},
};

static int do_help(conversation *c, const char *argument) {
    (void)c;
    (void)argument;
    for (size_t i = 0; i < sizeof slashes / sizeof *slashes; i++)
        cli_note("%-9s%s", slashes[i].name, slashes[i].help);
    cli_note("A line that ends in \\ goes on in the next one. Ctrl-C stops a reply.");
    return CLI_DONE;
}

static int run_slash(conversation *c, const char *text) {
    size_t n = strcspn(text, " ");
    for (size_t i = 0; i < sizeof slashes / sizeof *slashes; i++)
        if (strlen(slashes[i].name) == n && memcmp(slashes[i].name, text, n) == 0)
            return slashes[i].run(c, text + n + strspn(text + n, " "));
    return cli_wrong("no command '%.*s'; /help lists them", (int)n, text);
}

/* ---- the loop ---- */

static int converse(conversation *c, cli_editor *editor) {
    int exit_status = CLI_DONE;
    while (!c->ends) {
        const char *text = "";
        cli_interrupt_hold(true);
        cli_line line = cli_editor_read(editor, "> ", &text);
        if (line == CLI_LINE_INTERRUPTED) {
            cli_interrupt_take();
            cli_note("\n[Ctrl-C again, or /exit, leaves]");
            line = cli_editor_read(editor, "> ", &text);
        }
        cli_interrupt_hold(false);
        if (line != CLI_LINE_READ) break;
        cli_interrupt_clear();
        if (!*text) continue;
        int status = *text == '/' ? run_slash(c, text) : say(c, text);
        if (status && !isatty(STDIN_FILENO)) exit_status = CLI_FAILED;
        if (cli_flush_stdout()) return CLI_FAILED;
    }
    return exit_status;
}

static int open_chat(conversation *c, const cli_options *options) {
    kvant_session_options s = cli_session_options(options);
    kvant_chat_options chat_options = KVANT_CHAT_OPTIONS_INIT;
    chat_options.template_name = options->template_name;
    chat_options.context = cli_generate_options(options).context;
    int status = cli_runtime_open_model(&c->runtime, options, false);
    if (!status) status = cli_runtime_open_session(&c->runtime, &s);
    if (!status) status = cli_runtime_open_sampler(&c->runtime, options);
    if (status) return status;
    kvant_status failure = kvant_chat_create(&c->chat, c->runtime.session, 0, &chat_options);
    if (!failure && options->system) failure = kvant_chat_add(c->chat, "system", options->system);
    return failure ? cli_failed(failure) : CLI_DONE;
}

int cli_run_chat(const cli_options *options) {
    conversation c = {.options = options};
    cli_editor *editor = NULL;
    int status = open_chat(&c, options);
    if (!status) {
        cli_report_start(&c.runtime, options->context);
        cli_note("template %s; /help lists what can be typed", kvant_chat_template(c.chat));
        editor = cli_editor_open();
        status = editor ? converse(&c, editor) : cli_failed(KVANT_NO_MEMORY);
        if (c.totals.n_replies) cli_report_end(&c.runtime, &c.totals);
    }
    cli_editor_close(editor);
    kvant_chat_close(c.chat);
    cli_runtime_close(&c.runtime);
    return status;
}
