/* line_editor.h: lines from the user: edited with history on a terminal, plain from a pipe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct cli_editor cli_editor;

/* Editing and history only where stdin is a terminal and the program was built with libedit. The history lies
 * in $XDG_STATE_HOME/kvant/history, or ~/.local/state/kvant/history; where it cannot be kept, it lasts for
 * the session. NULL when out of memory. */
cli_editor *cli_editor_open(void);
/* Saves the history. */
void cli_editor_close(cli_editor *editor);

typedef enum cli_line { CLI_LINE_READ, CLI_LINE_END, CLI_LINE_INTERRUPTED } cli_line;
/* The next entry without its newline; lines that end in a backslash go on in the next one. Borrowed until the
 * next call. The prompt is shown on a terminal only. */
cli_line cli_editor_read(cli_editor *editor, const char *prompt, const char **text);
