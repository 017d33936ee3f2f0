/* cmd_check_kernels.c: one line for each kernel, and a sum; fails if one of them is wrong. */
#include "cli.h"
#include "console.h"
#include "kvant_tools.h"

#include <stdio.h>

static void print_kernel(void *user, const kvant_kernel_report *r) {
    static const char *const outcomes[] = {"ok", "FAILED", "skipped"};
    (void)user;
    if (*r->shape) {
        printf("%8s %-48s %12.1f ns %9.2f GB/s", "", r->shape, r->seconds * 1e9, r->gb_per_s);
        if (r->gmac_per_s > 0) printf(" %9.2f GMAC/s", r->gmac_per_s);
        putchar('\n');
    } else {
        printf("%-8s %-48s %-10s %-8s", outcomes[r->outcome], r->name, r->role, r->cpu);
        if (r->outcome == KVANT_KERNEL_OK) printf(" %5.1f %% of the error allowed", 100 * r->worst);
        printf(" %s\n", r->message);
    }
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
    cli_note("seed %lld", (long long)options->seed);
    kvant_status status = kvant_check_kernels(&check, &result);
    if (status) return cli_failed(status);
    printf("%d kernels ok, %d failed, %d skipped\n", result.n_ok, result.n_failed, result.n_skipped);
    if (!result.n_ok && !result.n_failed && !result.n_skipped)
        return cli_wrong("no kernel has '%s' in its name", options->args[0]);
    return result.n_failed ? CLI_FAILED : CLI_DONE;
}
