/* status.c: the per-thread message of the last failure. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE_BYTES 512

static _Thread_local char last_error[MESSAGE_BYTES];

/* Length of the well-formed UTF-8 character at s, 0 if there is none. */
static size_t character_bytes(const unsigned char *s) {
    size_t n = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    bool overlong = (*s == 0xe0 && s[1] < 0xa0) || (*s == 0xf0 && s[1] < 0x90);
    bool outside = (*s == 0xed && s[1] > 0x9f) || (*s == 0xf4 && s[1] > 0x8f);
    return overlong || outside ? 0 : n;
}

/* Names come from files: a message stays one line of valid text whatever they hold (also where it was cut).
 */
static void clean(char *message) {
    for (unsigned char *s = (unsigned char *)message; *s;) {
        size_t n = *s < 0x20 || *s == 0x7f ? 0 : character_bytes(s);
        if (!n) *s = '?';
        s += n ? n : 1;
    }
}

kv_status kv_fail(kv_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    clean(last_error);
    return status;
}

kv_status kv_fail_in(kv_status status, const char *format, ...) {
    char inner[MESSAGE_BYTES];
    memcpy(inner, last_error, sizeof inner);
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    size_t n = strlen(last_error), room = sizeof last_error - n, rest = strlen(inner);
    if (room > 3) {
        memcpy(last_error + n, ": ", 3);
        size_t copied = rest < room - 3 ? rest : room - 3;
        memcpy(last_error + n + 2, inner, copied);
        last_error[n + 2 + copied] = 0;
    }
    clean(last_error);
    return status;
}

const char *kv_last_error(void) { return last_error; }

const char *kv_status_text(kv_status status) {
    static const char *const texts[] = {
#define STATUS_TEXT(name, text) text,
        KVANT_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    };
    size_t i = (size_t)status;
    return i < sizeof texts / sizeof *texts ? texts[i] : "unknown status";
}
