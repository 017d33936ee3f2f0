/* cmd_check_layout.c: the laws of a layout for the KV cache, one line each, and with --bench what a cell
 * costs in it beside plain rows. The layout is one that is registered, all of them, or that of a shared
 * object. */
#include "cli.h"
#include "console.h"
#include "kvant_ext.h"
#include "kvant_tools.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void print_law(void *user, const kvant_law_report *r) {
    (void)user;
    printf("%-8s %-46s %4d cases %s\n", r->holds ? "ok" : "BROKEN", r->law, r->n_cases, r->message);
    fflush(stdout);
}

static void print_speed(void *user, const kvant_layout_speed *s) {
    bool *is_first = user;
    if (*is_first)
        printf("%-8s %-8s %20s %20s %20s\n", "", "type", "write, ns (rows)", "read, ns (rows)",
               "attend, ns (rows)");
    *is_first = false;
    printf("%-8s %-8s %11.1f %8.1f %11.1f %8.1f %11.1f %8.1f\n", "", s->type, s->write_ns, s->rows_write_ns,
           s->read_ns, s->rows_read_ns, s->attend_ns, s->rows_attend_ns);
    fflush(stdout);
}

/* Returns an exit status; broken laws are added to *n_broken. */
static int check_one(const cli_options *options, const char *name, int *n_broken) {
    kvant_layout_check check = KVANT_LAYOUT_CHECK_INIT;
    kvant_layout_result result = KVANT_LAYOUT_RESULT_INIT;
    bool is_first = true;
    check.cpu_mask = options->cpu_mask;
    check.seed = (uint64_t)options->seed;
    check.law = print_law;
    check.speed = options->bench ? print_speed : NULL;
    check.user = &is_first;
    printf("layout %s\n", name);
    kvant_status status = kvant_check_layout(name, &check, &result);
    *n_broken += result.n_broken;
    return status ? cli_failed(status) : CLI_DONE;
}

static int check_all(const cli_options *options, int *n_broken) {
    int status = CLI_DONE;
    for (int32_t i = 0; kvant_layout_name(i) && status == CLI_DONE; i++)
        status = check_one(options, kvant_layout_name(i), n_broken);
    return status;
}

/* A shared object stays loaded to the end of the program, since its kernels are in use. */
static int check_object(const cli_options *options, const char *path, int *n_broken) {
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) return cli_wrong("%s", dlerror());
    const kvant_layout_desc *layout = dlsym(object, KVANT_LAYOUT_SYMBOL);
    if (!layout) return cli_wrong("%s has no description of a layout: %s", path, dlerror());
    kvant_status status = kvant_register_layout(layout);
    return status ? cli_failed(status) : check_one(options, layout->name, n_broken);
}

static bool is_object(const char *name) {
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 3 && strcmp(name + n - 3, ".so") == 0);
}

int cli_run_check_layout(const cli_options *options) {
    const char *name = options->n_args ? options->args[0] : NULL;
    int n_broken = 0, status;
    cli_note("seed %lld", (long long)options->seed);
    if (!name)
        status = check_all(options, &n_broken);
    else if (is_object(name))
        status = check_object(options, name, &n_broken);
    else
        status = check_one(options, name, &n_broken);
    if (n_broken) printf("%d laws broken\n", n_broken);
    return status == CLI_DONE && n_broken ? CLI_FAILED : status;
}
