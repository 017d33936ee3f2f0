/* status.h: how a failure travels. A function that can fail returns a kv_status; whoever finds the fault
 * writes the message with kv_fail(), naming the thing, its value and the limit. The message lives per thread.
 */
#pragma once

#include "kvant.h"

typedef kvant_status kv_status;

/* Records the message for this thread and returns `status`. Never allocates; long messages are cut. */
kv_status kv_fail(kv_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
/* Puts "context: " in front of the current message and returns `status`. */
kv_status kv_fail_in(kv_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
const char *kv_last_error(void);
const char *kv_status_text(kv_status status);

#define KV_TRY(call)                             \
    do {                                         \
        kv_status kv_try_status = (call);        \
        if (kv_try_status) return kv_try_status; \
    } while (0)

/* For functions with one exit: expects `kv_status status` and a label `done`. */
#define KV_TRY_DONE(call)      \
    do {                       \
        status = (call);       \
        if (status) goto done; \
    } while (0)
