/* input.h: text from a flag, a file or stdin, whole in memory. */
#pragma once

#include "options.h"

typedef struct cli_text {
    char *at; /* owned, with a NUL behind the last byte */
    size_t n_bytes;
} cli_text;

/* A file's bytes; "-" is stdin. Returns an exit status. */
int cli_text_read(cli_text *out, const char *path);
/* The text of --prompt, or of --file, or else of stdin; both at once is wrong use, an empty one too. */
int cli_text_from_options(cli_text *out, const cli_options *options);
void cli_text_clear(cli_text *text);
