/* interrupt.c: the handler touches atomics only. */
#define _GNU_SOURCE
#include "interrupt.h"

#include "cli.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static _Atomic(kvant_session *) watched;
static atomic_int n_interrupts;
static atomic_bool is_held;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    int n = atomic_fetch_add(&n_interrupts, 1) + 1;
    if (n > 1 && !atomic_load(&is_held)) _exit(CLI_FAILED);
    kvant_session *session = atomic_load(&watched);
    if (session) kvant_session_cancel(session);
}

void cli_interrupt_watch(kvant_session *session) {
    atomic_store(&watched, session);
    struct sigaction action = {.sa_handler =
                                   on_interrupt}; /* no SA_RESTART: a read of the terminal returns */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool cli_interrupted(void) { return atomic_load(&n_interrupts) > 0; }

void cli_interrupt_clear(void) {
    atomic_store(&n_interrupts, 0);
    kvant_session *session = atomic_load(&watched);
    if (session) kvant_session_resume(session);
}

void cli_interrupt_hold(bool hold) { atomic_store(&is_held, hold); }
