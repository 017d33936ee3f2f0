/* cmd_calibrate.c: the library does it; here are the place of the file and the messages around it. */
#include "base/memory.h"
#include "calibration.h"
#include "cli.h"
#include "console.h"
#include "kvant_tools.h"
#include "runtime.h"

#include <stdio.h>

static void print_result(const kvant_calibrate_result *r, const char *path) {
    printf("%d tokens; mean KL divergence from a cache of f32 with K in 4 bits, by centred pairs:\n",
           r->n_tokens);
    for (int32_t i = 0; i < r->n_trials; i++)
        printf("  %3d  %.5f%s\n", r->trials[i].n_pairs, r->trials[i].kl,
               r->trials[i].n_pairs == r->n_pairs ? "  chosen" : "");
    printf("%s\n", path);
}

static int calibrate(const cli_runtime *r, const char *path) {
    kvant_calibrate_options o = KVANT_CALIBRATE_OPTIONS_INIT;
    kvant_calibrate_result result = KVANT_CALIBRATE_RESULT_INIT;
    o.progress = cli_progress;
    o.user = "calibrating";
    kvant_status status = kvant_calibrate(r->model, path, &o, &result);
    cli_progress_end();
    if (status) return cli_failed(status);
    print_result(&result, path);
    return CLI_DONE;
}

int cli_run_calibrate(const cli_options *options) {
    cli_runtime r;
    char *own = NULL;
    int status = cli_runtime_open_model(&r, options, false);
    if (!status && !options->centre && !(own = cli_calibration_path(r.info.fingerprint)))
        status = cli_wrong("neither XDG_CACHE_HOME nor HOME says where to write: --centre FILE does");
    if (!status && own) status = cli_calibration_make_folders(own);
    if (!status) status = calibrate(&r, own ? own : options->centre);
    kv_free(own);
    cli_runtime_close(&r);
    return status;
}
