/* status.c: the per-thread message of the last failure. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE_BYTES 512

static _Thread_local char last_error[MESSAGE_BYTES];

kv_status kv_fail(kv_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return status;
}

kv_status kv_fail_in(kv_status status, const char *format, ...) {
    char inner[MESSAGE_BYTES];
    memcpy(inner, last_error, sizeof inner);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof last_error)
        snprintf(last_error + n, sizeof last_error - (size_t)n, ": %s", inner);
    return status;
}

const char *kv_last_error(void) {
    return last_error;
}

const char *kv_status_text(kv_status status) {
    static const char *const texts[] = {
#define STATUS_TEXT(name, text) text,
        KVANT_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    };
    size_t i = (size_t)status;
    return i < sizeof texts / sizeof *texts ? texts[i] : "unknown status";
}
