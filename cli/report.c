/* report.c: the figures are computed here from what the library counted; bandwidth is measured only when a
 * block that shows it is printed, after the generation, so that it costs no time before the first token. */
#include "report.h"

#include "console.h"
#include "kvant_tools.h"

#include <stdio.h>
#include <sys/resource.h>

void cli_report_kv(const cli_runtime *r, void (*put)(const char *format, ...)) {
    const char *title = "kv";
    for (int32_t i = 0; i < r->session_info.n_kv_rows; i++, title = "") {
        kvant_kv_row row = KVANT_KV_ROW_INIT;
        if (kvant_session_kv_row(r->session, i, &row)) return;
        char layers[32], window[32] = "", rotation[48] = "";
        if (row.first_layer == row.last_layer)
            snprintf(layers, sizeof layers, "layer %d", row.first_layer);
        else
            snprintf(layers, sizeof layers, "layers %d-%d", row.first_layer, row.last_layer);
        if (row.window) snprintf(window, sizeof window, ", window %d", row.window);
        if (row.rotation_k > 1 || row.rotation_v > 1)
            snprintf(rotation, sizeof rotation, ", rotated by %d/%d", row.rotation_k, row.rotation_v);
        put("%-9s%-13s K %s %s, V %s %s, %s, %s/token, %s%s%s", title, layers, row.type_k, row.layout_k,
            row.type_v, row.layout_v, row.device, cli_size_text(row.bytes_per_token).text,
            cli_size_text(row.bytes_total).text, window, rotation);
        if (row.centre_pairs)
            put("%-9s%-13s K centred in %d pairs a head (%s): %d products more for each cell and query head",
                "", "", row.centre_pairs, r->session_info.centre_source, 2 * row.centre_pairs);
    }
}

static void put_node(void *user, const kvant_plan_node *n) {
    void (*const *put)(const char *format, ...) = user;
    (*put)("  %5d %-8s %-12s %-8s %-12s %-18s %10lld  %s", n->stage, n->label, n->op, n->device, n->type,
           n->layout, (long long)n->bytes, n->kernel);
}

kvant_status cli_report_plan(const cli_runtime *r, void (*put)(const char *format, ...)) {
    int32_t shapes[] = {1, r->session_info.n_batch};
    kvant_status status = KVANT_OK;
    for (int i = 0; i < 2 && !status; i++) {
        put("plan of an evaluation of %d %s", shapes[i], shapes[i] == 1 ? "token" : "tokens");
        put("  %5s %-8s %-12s %-8s %-12s %-18s %10s  %s", "stage", "part", "op", "device", "type", "layout",
            "bytes", "kernel");
        status = kvant_dump_plan(r->session, shapes[i], put_node, &put);
    }
    return status;
}

void cli_report_devices(const cli_runtime *r, void (*put)(const char *format, ...)) {
    for (int32_t i = 0; r->session_info.n_devices > 1 && i < r->session_info.n_devices; i++) {
        kvant_device_row row = KVANT_DEVICE_ROW_INIT;
        if (kvant_session_device(r->session, i, &row)) return;
        put("device   %s, %d threads, %s: %d layers, weights %s, kv %s", row.name, row.n_threads, row.kernels,
            row.n_layers, cli_size_text(row.weight_bytes).text, cli_size_text(row.kv_bytes).text);
    }
}

void cli_report_start(const cli_runtime *r, const char *context) {
    const kvant_model_info *m = &r->info;
    const kvant_session_info *s = &r->session_info;
    cli_note("model    %s, %s, %.1f M parameters, %s", m->name, m->architecture, (double)m->n_params * 1e-6,
             cli_size_text(m->n_bytes).text);
    cli_note("context  %d tokens (trained on %d), batch %d, when full: %s", s->n_ctx, m->n_ctx_train,
             s->n_batch, context);
    cli_note("threads  %d, kernels %s", m->n_threads, m->cpu);
    cli_report_devices(r, cli_note);
    cli_report_kv(r, cli_note);
    cli_note("memory   weights %s, kv %s/token, %s when full", cli_size_text(m->n_bytes).text,
             cli_size_text(s->kv_bytes_per_token).text, cli_size_text(s->kv_bytes_total).text);
    cli_note("sampling seed %lld", (long long)r->seed);
}

void cli_totals_add(cli_totals *t, const kvant_generate_result *result, int64_t n_in_cache) {
    t->n_prompt += result->n_prompt - result->n_trimmed;
    t->n_cached += result->n_cached;
    t->n_generated += result->n_generated;
    t->n_shifts += result->n_shifts;
    t->prefill_seconds += result->prefill_seconds;
    t->decode_seconds += result->decode_seconds;
    double middle = (double)n_in_cache - (double)result->n_generated / 2;
    t->kv_tokens_read += (double)result->n_generated * (middle > 0 ? middle : 0);
    t->n_replies++;
}

double cli_bytes_per_token(const kvant_session_info *info, double n_tokens) {
    return (double)info->weight_bytes_per_token + (double)info->kv_bytes_per_token * n_tokens;
}

double cli_peak_rss_mib(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (double)usage.ru_maxrss / 1024;
}

static double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

static void report_memory(const cli_runtime *r) {
    kvant_session_info info = KVANT_SESSION_INFO_INIT;
    kvant_session_get_info(r->session, &info);
    cli_note("memory   kv %s used of %s, scratch %s", cli_size_text(info.kv_bytes_used).text,
             cli_size_text(info.kv_bytes_total).text, cli_size_text(info.scratch_bytes).text);
    if (info.n_devices > 1) cli_note("copied   %s between devices", cli_size_text(info.crossed_bytes).text);
}

/* ", 12.3 GB/s (65 % of the 18.9 GB/s that memory gives)", or nothing where it cannot be said. */
static void describe_bandwidth(char *out, size_t capacity, const cli_runtime *r, const cli_totals *t,
                               double n_steps) {
    double limit = 0;
    *out = 0;
    if (n_steps < 1 || kvant_measure_bandwidth(&limit, r->info.n_threads, 0.1) || limit <= 0) return;
    double bytes = cli_bytes_per_token(&r->session_info, t->kv_tokens_read / (double)t->n_generated);
    double bytes_per_second = rate(n_steps * bytes, t->decode_seconds);
    snprintf(out, capacity, ", %.1f GB/s (%.0f %% of the %.1f GB/s that memory gives)",
             bytes_per_second * 1e-9, 100 * bytes_per_second / limit, limit * 1e-9);
}

void cli_report_end(const cli_runtime *r, const cli_totals *t) {
    if (!cli_is_heard()) return;
    /* The first token of a reply comes out of its prefill. */
    double n_steps = (double)(t->n_generated - t->n_replies), n_fresh = (double)(t->n_prompt - t->n_cached);
    char bandwidth[96];
    describe_bandwidth(bandwidth, sizeof bandwidth, r, t, n_steps);
    cli_note("load     %.2f s", r->info.load_seconds);
    cli_note("prefill  %.0f tokens in %.2f s, %.1f tokens/s", n_fresh, t->prefill_seconds,
             rate(n_fresh, t->prefill_seconds));
    cli_note("decode   %lld tokens in %.2f s, %.1f tokens/s%s", (long long)t->n_generated, t->decode_seconds,
             rate(n_steps > 0 ? n_steps : 0, t->decode_seconds), bandwidth);
    report_memory(r);
}

void cli_report_trim(const kvant_generate_result *result) {
    if (!result->n_trimmed) return;
    int32_t begin = result->trim_begin, n = result->n_trimmed;
    cli_note("trimmed  %d of %d tokens of the prompt left out, from token %d on: it did not fit", n,
             result->n_prompt, begin);
}

void cli_report_reply(const kvant_generate_result *result) {
    cli_note("finish   %s, %d tokens, %d %s", kvant_finish_text(result->finish), result->n_generated,
             result->n_shifts, result->n_shifts == 1 ? "shift" : "shifts");
}
