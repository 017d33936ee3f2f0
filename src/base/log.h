/* log.h: messages to the program that uses the library, through its callback. The library itself prints
 * nothing. */
#pragma once

#include "kvant.h"

void kv_log_set(kvant_log_fn fn, void *user);
void kv_log(kvant_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
