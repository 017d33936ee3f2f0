/* input.c: reads until the end of the file, of any kind, growing as it goes. */
#include "input.h"

#include "base/memory.h"
#include "cli.h"
#include "console.h"
#include "interrupt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Bytes are final: reads until EOF, an error or Ctrl-C. */
static int read_all(cli_text *out, FILE *file, const char *name) {
    size_t capacity = 0;
    void *at = NULL;
    size_t n = 0, got = 1;
    while (got && !cli_interrupted()) {
        if (!kv_vec_grow(&at, &capacity, n + 4096 + 1, 1)) {
            kv_free(at);
            return cli_failed(KVANT_NO_MEMORY);
        }
        got = fread((char *)at + n, 1, capacity - n - 1, file);
        n += got;
    }
    *out = (cli_text){at, n};
    out->at[n] = 0;
    if (cli_interrupted()) return cli_fault("%s: interrupted", name);
    return ferror(file) ? cli_wrong("%s: %s", name, strerror(errno)) : CLI_DONE;
}

int cli_text_read(cli_text *out, const char *path) {
    if (strcmp(path, "-") == 0) {
        if (isatty(STDIN_FILENO)) cli_note("reading the text from the terminal; Ctrl-D ends it");
        return read_all(out, stdin, "standard input");
    }
    FILE *file = fopen(path, "re");
    if (!file) return cli_wrong("%s: %s", path, strerror(errno));
    int status = read_all(out, file, path);
    fclose(file);
    return status;
}

static int copy_text(cli_text *out, const char *text) {
    size_t n = strlen(text);
    *out = (cli_text){kv_strndup(text, n), n};
    return out->at ? CLI_DONE : cli_failed(KVANT_NO_MEMORY);
}

int cli_text_from_options(cli_text *out, const cli_options *options) {
    cli_origin prompt = cli_options_origin(options, &options->prompt);
    cli_origin file = cli_options_origin(options, &options->file);
    if (prompt && prompt == file) return cli_wrong("both --prompt and --file are given; one of them, please");
    int status = prompt > file ? copy_text(out, options->prompt)
                               : cli_text_read(out, options->file ? options->file : "-");
    if (!status && out->n_bytes == 0) status = cli_wrong("the text is empty");
    return status;
}

void cli_text_clear(cli_text *text) {
    kv_free(text->at);
    *text = (cli_text){0};
}
