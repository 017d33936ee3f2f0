/* log.c: the one process-wide setting of the library: where log lines go. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static kvant_log_fn log_fn;
static void *log_user;

void kv_log_set(kvant_log_fn fn, void *user) {
    log_user = user;
    log_fn = fn;
}

void kv_log(kvant_log_level level, const char *format, ...) {
    if (!log_fn) return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log_fn(log_user, level, line);
}
