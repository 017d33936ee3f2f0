/* console.h: what the program says: messages, figures and progress on stderr (and in the log file), the
 * answer on stdout. Nothing else writes to either. */
#pragma once

#include "kvant.h"
#include "options.h"

#include <stdbool.h>

/* Sets up the log by -v, -q and --log-file, and takes the library's messages. Returns an exit status. */
int cli_console_open(const cli_options *options);
void cli_console_close(void);

/* A line on stderr unless --quiet. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Whether cli_note reaches anyone: stderr or the log file. */
bool cli_is_heard(void);

/* The last error of the library, with a way out where there is one; returns the exit status that goes with
 * it. */
int cli_failed(kvant_status status);
/* A fault of the program's own: something failed, or what was given is wrong. They return CLI_FAILED,
 * CLI_USAGE. */
int cli_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A bar that moves, on a terminal only; `user` is its title. Returns false after Ctrl-C: a kvant_progress_fn.
 */
bool cli_progress(void *user, double fraction);
/* Takes the bar away. */
void cli_progress_end(void);

/* Bytes to stdout at once. False when they could not be written; cli_flush_stdout says so once. */
bool cli_write(const char *bytes, size_t n);
/* 0, or CLI_FAILED after a message. */
int cli_flush_stdout(void);

/* "22.5 KiB" */
typedef struct cli_size {
    char text[24];
} cli_size;
cli_size cli_size_text(int64_t bytes);
