/* line_editor.c: libedit where it was found when this was built, getline otherwise. A read that Ctrl-C cuts
 * short comes back as interrupted with the terminal as it was before. */
#define _GNU_SOURCE
#include "line_editor.h"

#include "base/memory.h"
#include "interrupt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>
#ifdef KVANT_HAVE_EDIT
#include <histedit.h>
#endif

enum { HISTORY_ENTRIES = 1000, PATH_BYTES = 1024 };

struct cli_editor {
    const char *prompt;
    char *line; /* of getline */
    size_t line_capacity;
    char *entry; /* joined lines */
    size_t n_entry, entry_capacity;
#ifdef KVANT_HAVE_EDIT
    EditLine *edit; /* NULL: not on a terminal */
    History *history;
    char history_path[PATH_BYTES];
#endif
};

#ifdef KVANT_HAVE_EDIT
static char *give_prompt(EditLine *edit) {
    cli_editor *e = NULL;
    el_get(edit, EL_CLIENTDATA, &e);
    return (char *)e->prompt;
}

/* The folders on the way to the history are made as needed, for this user only. */
static void find_history(char *out) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = state && *state == '/' ? snprintf(out, PATH_BYTES, "%s/kvant/history", state)
            : home                 ? snprintf(out, PATH_BYTES, "%s/.local/state/kvant/history", home)
                                   : 0;
    if (n <= 0 || n >= PATH_BYTES) {
        *out = 0;
        return;
    }
    for (char *slash = strchr(out + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(out, 0700);
        *slash = '/';
    }
}

/* One character for libedit, put together from its bytes; -1 when interrupted. */
static int read_character(EditLine *edit, wchar_t *out) {
    mbstate_t state = {0};
    char byte;
    (void)edit;
    for (;;) {
        if (!cli_interrupt_wait_input()) return -1;
        ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got <= 0) return (int)got;
        size_t n = mbrtowc(out, &byte, 1, &state);
        if (n == (size_t)-1)
            memset(&state, 0, sizeof state); /* no character: left out */
        else if (n != (size_t)-2)
            return 1;
    }
}

static void open_edit(cli_editor *e) {
    HistEvent event;
    e->history = history_init();
    e->edit = el_init("kvant", stdin, stderr, stderr);
    if (!e->history || !e->edit) return;
    history(e->history, &event, H_SETSIZE, HISTORY_ENTRIES);
    history(e->history, &event, H_SETUNIQUE, 1);
    find_history(e->history_path);
    if (*e->history_path) history(e->history, &event, H_LOAD, e->history_path);
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_PROMPT, give_prompt);
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_HIST, history, e->history);
    el_set(e->edit, EL_SIGNAL, 0);
    el_set(e->edit, EL_GETCFN, read_character);
    el_source(e->edit, NULL);
}

static void close_edit(cli_editor *e) {
    HistEvent event;
    if (e->history && *e->history_path) {
        mode_t before = umask(077);
        history(e->history, &event, H_SAVE, e->history_path);
        umask(before);
    }
    if (e->edit) el_end(e->edit);
    if (e->history) history_end(e->history);
}

/* NULL at the end or when interrupted. */
static const char *read_edited(cli_editor *e, int *n) {
    HistEvent event;
    const char *line = el_gets(e->edit, n);
    if (line && *n > 1) history(e->history, &event, H_ENTER, line);
    return line;
}
#endif

cli_editor *cli_editor_open(void) {
    cli_editor *e = kv_alloc(1, sizeof *e);
#ifdef KVANT_HAVE_EDIT
    if (e && isatty(STDIN_FILENO)) open_edit(e);
#endif
    return e;
}

void cli_editor_close(cli_editor *e) {
    if (!e) return;
#ifdef KVANT_HAVE_EDIT
    close_edit(e);
#endif
    free(e->line);
    kv_free(e->entry);
    kv_free(e);
}

static const char *read_plain(cli_editor *e, int *n) {
    *n = 0;
    if (isatty(STDIN_FILENO)) {
        fputs(e->prompt, stderr);
        if (!cli_interrupt_wait_input()) return NULL;
    }
    ssize_t got = getline(&e->line, &e->line_capacity, stdin);
    *n = (int)got;
    if (got < 0) clearerr(stdin);
    return got < 0 ? NULL : e->line;
}

static const char *read_line(cli_editor *e, int *n) {
#ifdef KVANT_HAVE_EDIT
    if (e->edit) return read_edited(e, n);
#endif
    return read_plain(e, n);
}

cli_line cli_editor_read(cli_editor *e, const char *prompt, const char **text) {
    bool goes_on = true;
    e->n_entry = 0;
    for (e->prompt = prompt; goes_on; e->prompt = "... ") {
        int n = 0;
        errno = 0;
        const char *line = read_line(e, &n);
        if (!line && cli_interrupted()) return CLI_LINE_INTERRUPTED;
        if (!line && !e->n_entry) return CLI_LINE_END;
        size_t length = line ? (size_t)n : 0;
        if (length && line[length - 1] == '\n') length--;
        goes_on = length && line[length - 1] == '\\';
        if (goes_on) length--;
        if (!kv_vec_grow((void **)&e->entry, &e->entry_capacity, e->n_entry + length + 2, 1))
            return CLI_LINE_END;
        if (length) memcpy(e->entry + e->n_entry, line, length);
        e->n_entry += length;
        if (goes_on) e->entry[e->n_entry++] = '\n';
        e->entry[e->n_entry] = 0;
    }
    *text = e->entry;
    return CLI_LINE_READ;
}
