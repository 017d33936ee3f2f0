/* help.c: the table as text: usage, --help, and the completion of bash. */
#include "cli.h"
#include "kvant.h"

#include <stdio.h>
#include <string.h>

void cli_print_usage(void) {
    printf("kvant %s: runs large language models; the KV cache may have any type and layout\n\n"
           "usage: kvant COMMAND ...\n\n",
           kvant_version());
    for (int i = 0; i < CLI_N_COMMANDS; i++)
        printf("  %-14s %-26s %s\n", cli_commands[i].name, cli_commands[i].arguments,
               cli_commands[i].summary);
    puts("\nkvant COMMAND --help explains the flags of a command; kvant --version says which this is.\n"
         "Text that was asked for goes to stdout, everything else to stderr.\n"
         "Exit status: 0 done, 1 failed, 2 wrong flags, values or input.");
}

static void print_row(const cli_row *row) {
    char flag[80], variable[64];
    int n = snprintf(flag, sizeof flag, "%s%s%s--%s", *row->brief ? "-" : "    ", row->brief,
                     *row->brief ? ", " : "", row->name);
    if (row->value) snprintf(flag + n, sizeof flag - (size_t)n, " %s", row->value);
    printf("  %-30s %s", flag, row->help);
    if (row->choices) printf(" (%s)", row->choices);
    if (row->start) printf(" [%s]", row->start);
    cli_row_environment(row, variable, sizeof variable);
    printf("\n  %-30s $%s\n", "", variable);
}

void cli_print_help(int command) {
    const cli_command *c = &cli_commands[command];
    printf("kvant %s: %s\n\nusage: kvant %s %s\n", c->name, c->summary, c->name, c->arguments);
    const char *group = "";
    for (const cli_row *row = cli_rows; row < cli_rows + cli_n_rows; row++) {
        if (!(row->commands & 1u << command)) continue;
        if (strcmp(group, row->group) != 0) printf("\n%s\n", row->group);
        group = row->group;
        print_row(row);
    }
    puts("\nA flag may be set by the environment variable below it; the command line wins. [default]");
}

/* The words after which the shell completes: flags of each command, the choices of each flag. */
static void print_flags_of(int command) {
    for (const cli_row *row = cli_rows; row < cli_rows + cli_n_rows; row++)
        if (row->commands & 1u << command) {
            printf(" --%s", row->name);
            if (*row->brief) printf(" -%s", row->brief);
        }
    printf(" --help");
}

static void print_choices(void) {
    for (const cli_row *row = cli_rows; row < cli_rows + cli_n_rows; row++) {
        bool is_first = true;
        for (const cli_row *before = cli_rows; before < row; before++)
            if (strcmp(before->name, row->name) == 0) is_first = false;
        if (row->type != CLI_CHOICE || !is_first) continue;
        printf("        --%s) words='", row->name);
        for (const char *c = row->choices; *c; c++) putchar(*c == '|' ? ' ' : *c);
        puts("' ;;");
    }
}

void cli_print_completion_bash(void) {
    puts("# bash completion of kvant: source <(kvant completion bash)\n"
         "_kvant() {\n"
         "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
         "    COMPREPLY=()\n"
         "    if [ \"$COMP_CWORD\" = 1 ]; then");
    printf("        words='");
    for (int i = 0; i < CLI_N_COMMANDS; i++) printf("%s%s", i ? " " : "", cli_commands[i].name);
    puts(" --help --version'\n    else\n        case $before in");
    print_choices();
    puts("        esac\n"
         "        if [ -z \"$words\" ] && [ \"${word:0:1}\" = - ]; then case ${COMP_WORDS[1]} in");
    for (int i = 0; i < CLI_N_COMMANDS; i++) {
        printf("            %s) words='", cli_commands[i].name);
        print_flags_of(i);
        puts("' ;;");
    }
    puts("        esac; fi\n"
         "    fi\n"
         "    if [ -n \"$words\" ]; then COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "    else COMPREPLY=($(compgen -f -- \"$word\")); fi\n"
         "}\n"
         "complete -o filenames -F _kvant kvant");
}
