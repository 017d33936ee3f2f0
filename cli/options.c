/* options.c: the parser over the table. All values, of defaults, environment and command line, go through the
 * same set_value(), so that all are checked alike and every error names the flag, the value and what it may
 * be. */
#include "options.h"

#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
#define COMMAND(id, name, arguments, least, most, summary) ONLY_##id = 1 << CLI_COMMAND_##id,
#include "commands.inc"
#undef COMMAND
    RUN = ONLY_run,
    CHAT = ONLY_chat,
    TOKENIZE = ONLY_tokenize,
    PERPLEXITY = ONLY_perplexity,
    BENCH = ONLY_bench,
    INSPECT = ONLY_inspect,
    QUANTIZE = ONLY_quantize,
    CHECK = ONLY_check_kernels | ONLY_check_layout,
    CALIBRATE = ONLY_calibrate,
    GENERATE = RUN | CHAT,
    SESSION = GENERATE | PERPLEXITY | BENCH | INSPECT,
    MODEL = SESSION | TOKENIZE | CALIBRATE,
    WORKING = MODEL | QUANTIZE | CHECK,
};

#define NO_RANGE  0, 0
#define ANY_COUNT 0, INT32_MAX

const cli_row cli_rows[] = {
#define OPTION(field, name, brief, type, range, ...) OPTION_ROW(field, name, brief, type, range, __VA_ARGS__)
#define OPTION_ROW(field, name, brief, type, least, most, start, value, choices, commands, help)    \
    {name,  brief,    CLI_##type, offsetof(cli_options, field), least, most, start, value, choices, \
     GROUP, commands, help},
#include "options.inc"
#undef OPTION
#undef OPTION_ROW
};
const int cli_n_rows = (int)(sizeof cli_rows / sizeof *cli_rows);
_Static_assert(sizeof cli_rows / sizeof *cli_rows <= CLI_MAX_OPTIONS,
               "cli_options.origin has an entry for each row");

void cli_row_environment(const cli_row *row, char *out, size_t capacity) {
    snprintf(out, capacity, "KVANT_%s", row->name);
    for (char *c = out; *c; c++) *c = (char)(*c == '-' ? '_' : *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
}

/* Where a value is being read from, for messages. */
typedef struct place {
    const cli_row *row;
    cli_origin origin;
    const char *command;
} place;

static int refuse(const place *p, const char *value, const char *rule) {
    char flag[64];
    if (p->origin == CLI_ENVIRONMENT)
        cli_row_environment(p->row, flag, sizeof flag);
    else
        snprintf(flag, sizeof flag, "--%s", p->row->name);
    fprintf(stderr, "kvant %s: %s: '%s' %s\n", p->command, flag, value, rule);
    return CLI_USAGE;
}

static int refuse_range(const place *p, const char *value) {
    char rule[96];
    snprintf(rule, sizeof rule, p->row->type == CLI_REAL ? "is outside %g to %g" : "is outside %.0f to %.0f",
             p->row->least, p->row->most);
    return refuse(p, value, rule);
}

static bool in_range(const cli_row *row, double x) { return x >= row->least && x <= row->most; }

static int read_integer(const place *p, const char *value, int64_t *out) {
    char *end;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    if (end == value || *end || (*value != '-' && (*value < '0' || *value > '9')))
        return refuse(p, value, "is not a whole number");
    if (errno == ERANGE || !in_range(p->row, (double)n)) return refuse_range(p, value);
    *out = n;
    return CLI_DONE;
}

static int read_real(const place *p, const char *value, float *out) {
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || isnan(x)) return refuse(p, value, "is not a number");
    if (!in_range(p->row, x)) return refuse_range(p, value);
    *out = (float)x;
    return CLI_DONE;
}

static bool is_among(const char *value, const char *const *words) {
    for (; *words; words++)
        if (strcmp(value, *words) == 0) return true;
    return false;
}

static int read_flag(const place *p, const char *value, bool *out) {
    static const char *const on[] = {"1", "on", "true", "yes", "enabled", NULL};
    static const char *const off[] = {"0", "off", "false", "no", "disabled", NULL};
    if (!is_among(value, on) && !is_among(value, off)) return refuse(p, value, "is neither on nor off");
    *out = is_among(value, on);
    return CLI_DONE;
}

static int read_choice(const place *p, const char *value, const char **out) {
    size_t n = strlen(value);
    for (const char *c = p->row->choices; *c; c += strcspn(c, "|"), c += *c == '|')
        if (n && strcspn(c, "|") == n && memcmp(c, value, n) == 0) {
            *out = value;
            return CLI_DONE;
        }
    char rule[128];
    snprintf(rule, sizeof rule, "is none of %s", p->row->choices);
    return refuse(p, value, rule);
}

static int read_repeat(const place *p, const char *value, cli_repeat *out) {
    if (out->n == CLI_MAX_ITEMS) return refuse(p, value, "is one more than may be given (32)");
    out->at[out->n++] = value;
    return CLI_DONE;
}

/* Comma-separated items, each handed to `numbers` or `words`, whichever is not NULL. */
static int read_list(const place *p, const char *value, cli_numbers *numbers, cli_words *words) {
    int32_t n = 0;
    for (const char *at = value;; at++) {
        size_t length = strcspn(at, ",");
        char item[CLI_ITEM_BYTES];
        if (length == 0 || length >= sizeof item) return refuse(p, value, "is not a list like a,b,c");
        if (n == CLI_MAX_ITEMS) return refuse(p, value, "has more than 32 items");
        memcpy(item, at, length);
        item[length] = 0;
        int64_t number = 0;
        if (numbers && read_integer(p, item, &number)) return CLI_USAGE;
        if (numbers)
            numbers->at[n] = (int32_t)number;
        else
            memcpy(words->at[n], item, length + 1);
        n++;
        at += length;
        if (!*at) break;
    }
    if (numbers)
        numbers->n = n;
    else
        words->n = n;
    return CLI_DONE;
}

static int set_value(cli_options *o, const place *p, const char *value) {
    void *field = (char *)o + p->row->offset;
    uint8_t *origin = &o->origin[p->row - cli_rows];
    if (p->row->type == CLI_REPEAT && *origin < p->origin) *(cli_repeat *)field = (cli_repeat){0};
    *origin = (uint8_t)p->origin;
    int64_t n = 0;
    int status = CLI_DONE;
    switch (p->row->type) {
    case CLI_FLAG: return read_flag(p, value, field);
    case CLI_INT:
        status = read_integer(p, value, &n);
        if (!status) *(int32_t *)field = (int32_t)n;
        return status;
    case CLI_LONG: return read_integer(p, value, field);
    case CLI_REAL: return read_real(p, value, field);
    case CLI_TEXT:
    case CLI_PATH: *(const char **)field = value; return CLI_DONE;
    case CLI_CHOICE: return read_choice(p, value, field);
    case CLI_REPEAT: return read_repeat(p, value, field);
    case CLI_NUMBERS: return read_list(p, value, field, NULL);
    case CLI_WORDS: return read_list(p, value, NULL, field);
    }
    return status;
}

/* Defaults, then what the environment says. */
static int set_before_arguments(cli_options *o, const char *command) {
    for (const cli_row *row = cli_rows; row < cli_rows + cli_n_rows; row++) {
        if (!(row->commands & 1u << o->command)) continue;
        place p = {row, CLI_DEFAULT, command};
        if (row->start && set_value(o, &p, row->start)) return CLI_USAGE;
        char name[64];
        cli_row_environment(row, name, sizeof name);
        const char *value = getenv(name);
        p.origin = CLI_ENVIRONMENT;
        if (value && *value && set_value(o, &p, value)) return CLI_USAGE;
    }
    return CLI_DONE;
}

/* What getopt_long needs, made from the rows of one command. val = row + ROW_VALUE for long flags. */
enum { ROW_VALUE = 256, HELP_VALUE = ROW_VALUE + CLI_MAX_OPTIONS };
typedef struct getopt_tables {
    struct option longs[CLI_MAX_OPTIONS + 2];
    char shorts[3 * CLI_MAX_OPTIONS];
} getopt_tables;

static void make_getopt_tables(getopt_tables *t, int command) {
    struct option *next = t->longs;
    char *shorts = t->shorts;
    *shorts++ = ':';
    *shorts++ = 'h';
    for (int i = 0; i < cli_n_rows; i++) {
        const cli_row *row = &cli_rows[i];
        if (!(row->commands & 1u << command)) continue;
        bool is_flag = row->type == CLI_FLAG;
        *next++ =
            (struct option){row->name, is_flag ? optional_argument : required_argument, NULL, ROW_VALUE + i};
        if (strlen(row->brief) == 1) {
            *shorts++ = row->brief[0];
            if (!is_flag) *shorts++ = ':';
        }
    }
    *next++ = (struct option){"help", no_argument, NULL, HELP_VALUE};
    *next = (struct option){0};
    *shorts = 0;
}

static const cli_row *row_of_letter(int command, int letter) {
    for (const cli_row *row = cli_rows; row < cli_rows + cli_n_rows; row++)
        if (row->commands & 1u << command && row->brief[0] == letter && !row->brief[1]) return row;
    return NULL;
}

/* Familiar words behind one dash ("-ctk") become the long flag before getopt_long sees them, because it would
 * read them as letters. `longs` has room for the strings. */
static void expand_word_flags(int command, int argc, char **argv, char longs[][64], int capacity) {
    int n = 0;
    for (int i = 0; i < argc && n < capacity && strcmp(argv[i], "--") != 0; i++) {
        if (argv[i][0] != '-' || argv[i][1] == '-') continue;
        for (const cli_row *row = cli_rows; row < cli_rows + cli_n_rows; row++)
            if (row->commands & 1u << command && strlen(row->brief) > 1 &&
                strcmp(argv[i] + 1, row->brief) == 0) {
                snprintf(longs[n], sizeof longs[n], "--%s", row->name);
                argv[i] = longs[n++];
                break;
            }
    }
}

static int refuse_flag(const char *command, int found, char **argv) {
    const char *flag = argv[optind - 1];
    char letter[3] = {'-', (char)optopt, 0};
    if (optopt > 0 && optopt < ROW_VALUE) flag = letter;
    if (found == ':')
        fprintf(stderr, "kvant %s: %s needs a value\n", command, flag);
    else if (optopt >= ROW_VALUE)
        fprintf(stderr, "kvant %s: %s takes no value\n", command, flag);
    else
        fprintf(stderr, "kvant %s: unknown flag %s; kvant %s --help lists them\n", command, flag, command);
    return CLI_USAGE;
}

static int set_from_arguments(cli_options *o, const char *command, int argc, char **argv, bool *wants_help) {
    getopt_tables tables;
    make_getopt_tables(&tables, o->command);
    opterr = 0;
    optind = 1;
    for (int found; (found = getopt_long(argc, argv, tables.shorts, tables.longs, NULL)) != -1;) {
        if (found == 'h' || found == HELP_VALUE) {
            *wants_help = true;
            return CLI_DONE;
        }
        if (found == '?' || found == ':') return refuse_flag(command, found, argv);
        const cli_row *row =
            found >= ROW_VALUE ? &cli_rows[found - ROW_VALUE] : row_of_letter(o->command, found);
        place p = {row, CLI_ARGUMENT, command};
        if (set_value(o, &p, optarg ? optarg : "on")) return CLI_USAGE;
    }
    return CLI_DONE;
}

static int refuse_arguments(const cli_command *command, const char *what, const char *value) {
    fprintf(stderr, "kvant %s: %s%s; usage: kvant %s %s\n", command->name, what, value, command->name,
            command->arguments);
    return CLI_USAGE;
}

/* What is left of argv. In the commands that take a model the first one is it, unless --model named one. */
static int take_positional(cli_options *o, int argc, char **argv) {
    const cli_command *command = &cli_commands[o->command];
    o->args = (const char *const *)argv + optind;
    o->n_args = argc - optind;
    if (MODEL & 1u << o->command) {
        if (o->n_args && cli_options_origin(o, &o->model) != CLI_ARGUMENT) o->model = *o->args++, o->n_args--;
        if (!o->model) return refuse_arguments(command, "no model given", "");
    }
    if (o->n_args > command->most)
        return refuse_arguments(command, "unexpected argument ", o->args[command->most]);
    if (o->n_args < command->least) return refuse_arguments(command, "too few arguments", "");
    return CLI_DONE;
}

int cli_options_parse(cli_options *out, int command, int argc, char **argv, bool *wants_help) {
    static char word_flags[CLI_MAX_OPTIONS][64];
    const char *name = cli_commands[command].name;
    *out = (cli_options){.command = command};
    *wants_help = false;
    expand_word_flags(command, argc, argv, word_flags, CLI_MAX_OPTIONS);
    int status = set_before_arguments(out, name);
    if (!status) status = set_from_arguments(out, name, argc, argv, wants_help);
    if (!status && !*wants_help) status = take_positional(out, argc, argv);
    return status;
}

cli_origin cli_options_origin(const cli_options *options, const void *field) {
    cli_origin origin = CLI_DEFAULT;
    for (int i = 0; i < cli_n_rows; i++)
        if ((const char *)options + cli_rows[i].offset == (const char *)field && options->origin[i] > origin)
            origin = (cli_origin)options->origin[i];
    return origin;
}
