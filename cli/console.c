/* console.c: stderr, the log file and stdout. The one place of the program with state of its own: what was
 * asked for about output, and whether a bar stands on the terminal. */
#include "console.h"

#include "cli.h"
#include "interrupt.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
    kvant_log_level level; /* of what goes to stderr */
    bool is_quiet;
    bool has_bar;
    FILE *log;
    const char *log_path;
    int stdout_errno; /* of the first write that failed */
} console = {.level = KVANT_LOG_WARN};

/* One line to stderr if `show`, and to the log file with the level's letter. */
static void put_line(kvant_log_level level, bool show, const char *line) {
    if (show) {
        cli_progress_end();
        fprintf(stderr, "%s\n", line);
    }
    if (console.log) fprintf(console.log, "%c %s\n", "EWID"[level], line);
}

static void put_format(kvant_log_level level, bool show, const char *format, va_list args) {
    char line[2048];
    vsnprintf(line, sizeof line, format, args);
    put_line(level, show, line);
}

static void on_library_log(void *user, kvant_log_level level, const char *message) {
    (void)user;
    put_line(level, level <= console.level, message);
}

int cli_console_open(const cli_options *options) {
    console.is_quiet = options->quiet;
    console.level = options->quiet ? KVANT_LOG_ERROR : options->verbose ? KVANT_LOG_DEBUG : KVANT_LOG_WARN;
    if (options->log_file) {
        console.log_path = options->log_file;
        console.log = fopen(options->log_file, "we");
        if (!console.log) return cli_wrong("--log-file %s: %s", options->log_file, strerror(errno));
        setvbuf(console.log, NULL, _IOLBF, 0);
    }
    kvant_set_log(on_library_log, NULL);
    return CLI_DONE;
}

void cli_console_close(void) {
    kvant_set_log(NULL, NULL);
    cli_progress_end();
    if (!console.log) return;
    bool failed = ferror(console.log) != 0;
    failed |= fclose(console.log) != 0;
    console.log = NULL;
    if (failed) fprintf(stderr, "kvant: %s: not all messages could be written\n", console.log_path);
}

void cli_note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    put_format(KVANT_LOG_INFO, !console.is_quiet, format, args);
    va_end(args);
}

bool cli_is_heard(void) { return !console.is_quiet || console.log; }

int cli_fault(const char *format, ...) {
    char message[1024], line[1040];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    snprintf(line, sizeof line, "kvant: %s", message);
    put_line(KVANT_LOG_ERROR, true, line);
    return CLI_FAILED;
}

int cli_wrong(const char *format, ...) {
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    cli_fault("%s", message);
    return CLI_USAGE;
}

static bool is_wrong_input(kvant_status status) {
    return status == KVANT_INVALID || status == KVANT_FORMAT || status == KVANT_UNSUPPORTED ||
           status == KVANT_NOT_FOUND || status == KVANT_CONTEXT_FULL;
}

int cli_failed(kvant_status status) {
    if (is_wrong_input(status)) return cli_wrong("%s", kvant_last_error());
    return cli_fault("%s", kvant_last_error());
}

bool cli_progress(void *user, double fraction) {
    if (!console.is_quiet && isatty(STDERR_FILENO)) {
        char bar[31];
        int full = (int)(fraction * (double)(sizeof bar - 1));
        for (int i = 0; i < (int)sizeof bar - 1; i++) bar[i] = i < full ? '#' : '.';
        bar[sizeof bar - 1] = 0;
        fprintf(stderr, "\r%s [%s] %3.0f %%", (const char *)user, bar, fraction * 100);
        fflush(stderr);
        console.has_bar = true;
    }
    return !cli_interrupted();
}

void cli_progress_end(void) {
    if (console.has_bar) fputs("\r\033[K", stderr);
    console.has_bar = false;
}

bool cli_write(const char *bytes, size_t n) {
    if (fwrite(bytes, 1, n, stdout) == n && fflush(stdout) == 0) return true;
    if (!console.stdout_errno) console.stdout_errno = errno;
    return false;
}

int cli_flush_stdout(void) {
    if (fflush(stdout) && !console.stdout_errno) console.stdout_errno = errno;
    if (!console.stdout_errno && !ferror(stdout)) return CLI_DONE;
    return cli_fault("standard output: %s", strerror(console.stdout_errno ? console.stdout_errno : EIO));
}

cli_size cli_size_text(int64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)bytes;
    int unit = 0;
    for (; n >= 1024 && unit < 4; unit++) n /= 1024;
    cli_size size;
    snprintf(size.text, sizeof size.text, unit ? "%.1f %s" : "%.0f %s", n, units[unit]);
    return size;
}
