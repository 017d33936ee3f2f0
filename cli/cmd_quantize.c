/* cmd_quantize.c: the library does it; here are the messages around it. */
#include "cli.h"
#include "console.h"
#include "interrupt.h"
#include "kvant_tools.h"

static void report(const kvant_quantize_result *r, const char *out_path) {
    if (r->n_requantized)
        cli_note("warning: %lld tensors were quantized before: both errors are in them now",
                 (long long)r->n_requantized);
    if (r->n_misfits)
        cli_note("warning: %lld tensors stay as they are: their rows do not fit the type's block",
                 (long long)r->n_misfits);
    cli_note("%s: %lld tensors converted, %lld copied, %s -> %s", out_path, (long long)r->n_converted,
             (long long)r->n_kept, cli_size_text(r->bytes_in).text, cli_size_text(r->bytes_out).text);
}

int cli_run_quantize(const cli_options *options) {
    const char *in_path = options->args[0], *out_path = options->args[1];
    kvant_quantize_options q = KVANT_QUANTIZE_OPTIONS_INIT;
    kvant_quantize_result result = KVANT_QUANTIZE_RESULT_INIT;
    q.type = options->args[2];
    q.output_type = options->output_type;
    q.embedding_type = options->embedding_type;
    q.keep_output = options->keep_output;
    q.n_threads = options->n_threads;
    q.progress = cli_progress;
    q.user = "quantizing";
    cli_interrupt_watch(NULL);
    kvant_status status = kvant_quantize(in_path, out_path, &q, &result);
    cli_progress_end();
    if (status) return cli_failed(status);
    report(&result, out_path);
    return CLI_DONE;
}
