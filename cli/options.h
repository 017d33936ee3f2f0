/* options.h: every flag of the program, described once in options.inc. The table gives the parser, the
 * environment variable KVANT_<NAME> of each flag, --help and the shell completion. What the command line says
 * wins over the environment, which wins over the default. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CLI_MAX_ITEMS = 32, CLI_MAX_OPTIONS = 128, CLI_ITEM_BYTES = 24 };

/* Values of a flag given several times; borrowed from argv or the environment. */
typedef struct cli_repeat {
    const char *at[CLI_MAX_ITEMS];
    int32_t n;
} cli_repeat;

/* Comma-separated numbers, and comma-separated short words. */
typedef struct cli_numbers {
    int32_t at[CLI_MAX_ITEMS];
    int32_t n;
} cli_numbers;
typedef struct cli_words {
    char at[CLI_MAX_ITEMS][CLI_ITEM_BYTES];
    int32_t n;
} cli_words;

typedef enum cli_origin { CLI_DEFAULT, CLI_ENVIRONMENT, CLI_ARGUMENT } cli_origin;

/* The fields are explained by the rows of options.inc that fill them. */
typedef struct cli_options {
    int command;
    const char *const *args; /* positional, the model not among them */
    int32_t n_args;

    const char *model, *cpu_mask, *devices, *split, *kv_device;
    int32_t n_threads;

    int32_t n_ctx, n_batch;
    const char *type_k, *type_v, *act, *context;
    const char *kv_layers, *layout_k, *layout_v, *rotation, *shift;
    int32_t window_margin, n_pin;
    const char *centre;
    int32_t centre_pairs;

    const char *prompt, *file, *system, *template_name, *session;
    bool raw, no_display_prompt;

    int32_t n_predict, n_keep;
    bool ignore_eos, trim;
    cli_repeat stop;

    float temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    int32_t top_k, repeat_last_n;
    int64_t seed;
    cli_repeat logit_bias;

    bool ids, pieces, count, special, bos;
    int32_t n_window, n_chunks, n_stretch;
    const char *save_logits, *compare_logits;

    int32_t bench_prompt, bench_gen, bench_reps;
    cli_numbers bench_depths, bench_threads;
    cli_words bench_types_k, bench_types_v;
    const char *output_format;

    bool kv, dump_plan;
    const char *output_type, *embedding_type;
    bool keep_output, bench, bench_shift;

    bool verbose, quiet;
    const char *log_file;

    uint8_t origin[CLI_MAX_OPTIONS]; /* a cli_origin for each row of the table */
} cli_options;

/* Reads argv[2..] for the command; argv is permuted. Returns CLI_DONE, or CLI_USAGE after an error was
 * printed; *wants_help is set by --help. */
int cli_options_parse(cli_options *out, int command, int argc, char **argv, bool *wants_help);
/* Where the value of a field came from: cli_options_origin(o, &o->prompt). */
cli_origin cli_options_origin(const cli_options *options, const void *field);

/* The program's own help, and a command's. */
void cli_print_usage(void);
void cli_print_help(int command);
void cli_print_completion_bash(void);

/* ---- the table, for the parser, help and completion ---- */

typedef enum cli_type {
    CLI_FLAG,    /* bool */
    CLI_INT,     /* int32_t */
    CLI_LONG,    /* int64_t */
    CLI_REAL,    /* float */
    CLI_TEXT,    /* const char * */
    CLI_PATH,    /* const char *, completed as a file name */
    CLI_CHOICE,  /* const char *, one of `choices` */
    CLI_REPEAT,  /* cli_repeat */
    CLI_NUMBERS, /* cli_numbers */
    CLI_WORDS    /* cli_words */
} cli_type;

typedef struct cli_row {
    const char *name;  /* long flag without dashes */
    const char *brief; /* short flag without its dash: a letter, or a familiar word like "ctk"; "" if none */
    cli_type type;
    size_t offset; /* of the field */
    double least, most;
    const char *start;   /* the default, as one would type it; NULL: unset */
    const char *value;   /* what the help calls the value */
    const char *choices; /* "a|b|c" of a CLI_CHOICE */
    const char *group;
    unsigned commands; /* bit i: command i takes it */
    const char *help;
} cli_row;

extern const cli_row cli_rows[];
extern const int cli_n_rows;
/* "KVANT_CTX_SIZE" of the row "ctx-size". */
void cli_row_environment(const cli_row *row, char *out, size_t capacity);
