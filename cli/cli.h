/* cli.h: what the commands share: how one is declared and how the program ends. */
#pragma once

#include "options.h"

enum {
    CLI_DONE = 0,
    CLI_FAILED = 1, /* it should have worked: memory, a full disk, a cancelled load */
    CLI_USAGE = 2   /* what was given is wrong: flags, values, files, a prompt that is too long */
};

typedef struct cli_command {
    const char *name, *arguments;
    int least, most; /* positional arguments */
    const char *summary;
    int (*run)(const cli_options *options); /* returns the exit status */
} cli_command;

enum {
#define COMMAND(id, name, arguments, least, most, summary) CLI_COMMAND_##id,
#include "commands.inc"
#undef COMMAND
    CLI_N_COMMANDS
};

extern const cli_command cli_commands[CLI_N_COMMANDS];
/* The index, -1 if there is none of that name. */
int cli_find_command(const char *name);

#define COMMAND(id, name, arguments, least, most, summary) int cli_run_##id(const cli_options *options);
#include "commands.inc"
#undef COMMAND
