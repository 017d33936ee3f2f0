/* interrupt.h: Ctrl-C. The first one cancels what runs, the second one leaves at once. */
#pragma once

#include "kvant.h"

#include <stdbool.h>

/* From now on a Ctrl-C cancels `session` (may be NULL: only cli_interrupted() turns true). */
void cli_interrupt_watch(kvant_session *session);
/* Whether there was a Ctrl-C that nobody took or cleared. */
bool cli_interrupted(void);
/* Forgets them all, and lets the watched session go on. */
void cli_interrupt_clear(void);

/* While a line is edited, any number of Ctrl-C only counts: the editor gives the terminal back first. */
void cli_interrupt_hold(bool hold);
/* Takes one of them; false if there is none. */
bool cli_interrupt_take(void);
/* Waits until stdin can be read; false if there is a Ctrl-C first, whenever it came. */
bool cli_interrupt_wait_input(void);
