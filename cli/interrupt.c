/* interrupt.c: the handler touches atomics and a pipe only. Each Ctrl-C is a byte in the pipe, so that one
 * that comes just before a read of the terminal is not slept through, whichever thread it came to. */
#define _GNU_SOURCE
#include "interrupt.h"

#include "cli.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static _Atomic(kvant_session *) watched;
static atomic_int n_interrupts;
static atomic_bool is_held;
static int pipe_ends[2] = {-1, -1}; /* made at the first watch; never closed */

static void on_interrupt(int signal_number) {
    (void)signal_number;
    int n = atomic_fetch_add(&n_interrupts, 1) + 1;
    if (n > 1 && !atomic_load(&is_held)) _exit(CLI_FAILED);
    ssize_t written = write(pipe_ends[1], "", 1); /* full: there are enough bytes in it */
    (void)written;
    kvant_session *session = atomic_load(&watched);
    if (session) kvant_session_cancel(session);
}

void cli_interrupt_watch(kvant_session *session) {
    atomic_store(&watched, session);
    if (pipe_ends[0] < 0 && pipe2(pipe_ends, O_NONBLOCK | O_CLOEXEC)) pipe_ends[0] = pipe_ends[1] = -1;
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: a read of a file returns */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool cli_interrupted(void) { return atomic_load(&n_interrupts) > 0; }

bool cli_interrupt_take(void) {
    char byte;
    if (!cli_interrupted()) return false;
    ssize_t got = read(pipe_ends[0], &byte, 1); /* none if the pipe was full, or could not be made */
    (void)got;
    atomic_fetch_sub(&n_interrupts, 1);
    return true;
}

void cli_interrupt_clear(void) {
    while (cli_interrupt_take()) continue;
    kvant_session *session = atomic_load(&watched);
    if (session) kvant_session_resume(session);
}

void cli_interrupt_hold(bool hold) { atomic_store(&is_held, hold); }

bool cli_interrupt_wait_input(void) {
    struct pollfd files[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = pipe_ends[0], .events = POLLIN}};
    while (!cli_interrupted() && !files[0].revents) poll(files, 2, -1);
    return !cli_interrupted();
}
