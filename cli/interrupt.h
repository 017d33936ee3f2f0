/* interrupt.h: Ctrl-C. The first one cancels what runs, the second one leaves at once. */
#pragma once

#include "kvant.h"

#include <stdbool.h>

/* From now on a Ctrl-C cancels `session` (may be NULL: only cli_interrupted() turns true). */
void cli_interrupt_watch(kvant_session *session);
/* Whether there was a Ctrl-C since the last cli_interrupt_clear(). */
bool cli_interrupted(void);
/* Forgets it, and lets the watched session go on. */
void cli_interrupt_clear(void);
/* While a line is edited, any number of Ctrl-C only counts: the editor gives the terminal back first. */
void cli_interrupt_hold(bool hold);
