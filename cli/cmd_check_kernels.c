/* cmd_check_kernels.c: one line for each kernel, and a sum; fails if one of them is wrong. */
#include "cli.h"
#include "console.h"
#include "kvant_tools.h"

#include <stdio.h>

static void print_kernel(void *user, const kvant_kernel_report *r) {
    static const char *const outcomes[] = {"ok", "FAILED", "skipped"};
    const cli_options *options = user;
    printf("%-8s %-44s %-10s %-10s", outcomes[r->outcome], r->name, r->role, r->cpu);
    if (r->outcome == KVANT_KERNEL_OK) printf(" %6d cases", r->n_cases);
    if (options->bench && r->ns > 0)
        printf("  %10.0f ns, reference %10.0f ns, %6.2f x", r->ns, r->reference_ns, r->reference_ns / r->ns);
    printf("%s%s\n", *r->message ? "  " : "", r->message);
    fflush(stdout);
}

int cli_run_check_kernels(const cli_options *options) {
    kvant_check_options check = KVANT_CHECK_OPTIONS_INIT;
    kvant_check_result result = KVANT_CHECK_RESULT_INIT;
    check.filter = options->n_args ? options->args[0] : NULL;
    check.cpu_mask = options->cpu_mask;
    check.seed = (uint64_t)options->seed;
    check.bench = options->bench;
    check.report = print_kernel;
    check.user = (void *)options;
    cli_note("seed %lld", (long long)options->seed);
    kvant_status status = kvant_check_kernels(&check, &result);
    if (status) return cli_failed(status);
    printf("%d kernels ok, %d failed, %d skipped\n", result.n_ok, result.n_failed, result.n_skipped);
    if (!result.n_ok && !result.n_failed && !result.n_skipped)
        return cli_wrong("no kernel has '%s' in its name", options->args[0]);
    return result.n_failed ? CLI_FAILED : CLI_DONE;
}
