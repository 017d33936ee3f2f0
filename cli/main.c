/* main.c: picks the command, reads its flags, and makes sure that what went to stdout arrived. */
#include "cli.h"
#include "console.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

const cli_command cli_commands[CLI_N_COMMANDS] = {
#define COMMAND(id, name, arguments, least, most, summary) \
    {name, arguments, least, most, summary, cli_run_##id},
#include "commands.inc"
#undef COMMAND
};

int cli_find_command(const char *name) {
    for (int i = 0; i < CLI_N_COMMANDS; i++)
        if (strcmp(cli_commands[i].name, name) == 0) return i;
    return -1;
}

int cli_run_help(const cli_options *options) {
    if (!options->n_args) {
        cli_print_usage();
        return CLI_DONE;
    }
    int command = cli_find_command(options->args[0]);
    if (command < 0) return cli_wrong("no command '%s'; kvant help lists them", options->args[0]);
    cli_print_help(command);
    return CLI_DONE;
}

int cli_run_completion(const cli_options *options) {
    if (strcmp(options->args[0], "bash") != 0)
        return cli_wrong("completion is there for bash, not for '%s'", options->args[0]);
    cli_print_completion_bash();
    return CLI_DONE;
}

static int run_command(int command, int argc, char **argv) {
    cli_options options;
    bool wants_help;
    int status = cli_options_parse(&options, command, argc, argv, &wants_help);
    if (status) return status;
    if (wants_help) {
        cli_print_help(command);
        return CLI_DONE;
    }
    status = cli_console_open(&options);
    if (!status) status = cli_commands[command].run(&options);
    cli_console_close();
    return status;
}

static int dispatch(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    int command = cli_find_command(word);
    if (command >= 0) return run_command(command, argc - 1, argv + 1);
    if (strcmp(word, "--version") == 0) {
        printf("kvant %s\n", kvant_version());
        return CLI_DONE;
    }
    if (strcmp(word, "--completion-bash") == 0) {
        cli_print_completion_bash();
        return CLI_DONE;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        cli_print_usage();
        return CLI_DONE;
    }
    if (!*word)
        fputs("kvant: no command given; kvant --help lists them\n", stderr);
    else
        fprintf(stderr, "kvant: no command '%s'; kvant --help lists them\n", word);
    return CLI_USAGE;
}

int main(int argc, char **argv) {
    setlocale(LC_CTYPE, "");  /* for line editing; numbers keep their point */
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, with a message */
    int status = dispatch(argc, argv);
    if (cli_flush_stdout() && !status) status = CLI_FAILED;
    return status;
}
