/* runtime.c: opening in the order model, session, sampler; closing in reverse. */
#define _GNU_SOURCE
#include "runtime.h"

#include "base/memory.h"
#include "calibration.h"
#include "cli.h"
#include "console.h"
#include "interrupt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

int cli_runtime_open_model(cli_runtime *out, const cli_options *options, bool vocab_only) {
    kvant_model_options model_options = KVANT_MODEL_OPTIONS_INIT;
    model_options.n_threads = options->n_threads;
    model_options.cpu_mask = options->cpu_mask;
    model_options.devices = options->devices;
    model_options.split = options->split;
    model_options.vocab_only = vocab_only;
    model_options.progress = cli_progress;
    model_options.user = "loading";
    *out = (cli_runtime){.info = KVANT_MODEL_INFO_INIT, .session_info = KVANT_SESSION_INFO_INIT};
    cli_interrupt_watch(NULL);
    kvant_status status = kvant_model_open(&out->model, options->model, &model_options);
    cli_progress_end();
    if (status == KVANT_NO_MEMORY)
        return cli_fault("%s; weights in a smaller type (kvant quantize) or more free memory would do",
                         kvant_last_error());
    if (status) return cli_failed(status);
    kvant_model_get_info(out->model, &out->info);
    return CLI_DONE;
}

kvant_session_options cli_session_options(const cli_options *options) {
    kvant_session_options s = KVANT_SESSION_OPTIONS_INIT;
    s.n_ctx = options->n_ctx;
    s.n_batch = options->n_batch;
    s.type_k = options->type_k;
    s.type_v = options->type_v;
    s.kv_layers = options->kv_layers;
    s.layout_k = options->layout_k;
    s.layout_v = options->layout_v;
    s.kv_device = options->kv_device;
    bool eager = options->shift && strcmp(options->shift, "eager") == 0;
    s.shift = eager ? KVANT_SHIFT_EAGER : KVANT_SHIFT_LAZY;
    s.window_margin = options->window_margin;
    s.n_pin = options->n_pin;
    bool off = options->rotation && strcmp(options->rotation, "off") == 0;
    s.rotation = off ? KVANT_ROTATION_OFF : KVANT_ROTATION_AUTO;
    s.centre = strcmp(options->centre, "off") == 0 ? KVANT_CENTRE_OFF : KVANT_CENTRE_AUTO;
    if (!s.centre && strcmp(options->centre, "auto") != 0) s.centre_path = options->centre;
    s.centre_pairs = options->centre_pairs;
    s.act = options->act && strcmp(options->act, "f32") == 0 ? KVANT_ACT_F32 : KVANT_ACT_FAST;
    return s;
}

/* Whether K has few bits somewhere and no centre. */
static bool wants_calibration(const cli_runtime *r) {
    for (int32_t i = 0; i < r->session_info.n_kv_rows; i++) {
        kvant_kv_row row = KVANT_KV_ROW_INIT;
        if (!kvant_session_kv_row(r->session, i, &row) && row.k_bits < 8 && !row.centre_pairs) return true;
    }
    return false;
}

/* With what kvant calibrate wrote for this model, where nothing else was asked for. */
static kvant_status create_session(cli_runtime *r, kvant_session_options s) {
    char *own = s.centre || s.centre_path ? NULL : cli_calibration_path(r->info.fingerprint);
    if (own && access(own, F_OK) == 0) s.centre_path = own;
    kvant_status status = kvant_session_create(&r->session, r->model, &s);
    kv_free(own);
    return status;
}

int cli_runtime_open_session(cli_runtime *r, const kvant_session_options *session_options) {
    kvant_status status = create_session(r, *session_options);
    if (status) return cli_failed(status);
    kvant_session_get_info(r->session, &r->session_info);
    cli_interrupt_watch(r->session);
    if (!session_options->centre && strcmp(r->session_info.centre_source, "none") == 0 &&
        wants_calibration(r))
        cli_note("note: keys of so few bits lose less once kvant calibrate has seen this model");
    return CLI_DONE;
}

/* "15043+1.5", "15043-inf": a token id, then a signed number. */
static int parse_bias(kvant_logit_bias *out, const char *text, int32_t n_vocab) {
    char *end, *end_bias;
    long id = strtol(text, &end, 10);
    if (end == text || (*end != '+' && *end != '-'))
        return cli_wrong("--logit-bias: '%s' is not an id with a signed number behind it, as 15043+1.5",
                         text);
    if (id < 0 || id >= n_vocab)
        return cli_wrong("--logit-bias: token %ld of '%s' is outside 0 to %d", id, text, n_vocab - 1);
    out->token = (kvant_token)id;
    out->bias = strtof(end, &end_bias);
    if (end_bias == end || *end_bias) return cli_wrong("--logit-bias: '%s' ends in no number", text);
    return CLI_DONE;
}

static int64_t draw_seed(void) {
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed) seed = (uint32_t)kv_alloc_count();
    return (int64_t)seed;
}

int cli_runtime_open_sampler(cli_runtime *r, const cli_options *options) {
    kvant_logit_bias bias[CLI_MAX_ITEMS];
    for (int32_t i = 0; i < options->logit_bias.n; i++)
        if (parse_bias(&bias[i], options->logit_bias.at[i], r->info.n_vocab)) return CLI_USAGE;
    r->seed = options->seed < 0 ? draw_seed() : options->seed;
    kvant_sampler_options s = KVANT_SAMPLER_OPTIONS_INIT;
    s.temperature = options->temperature;
    s.top_k = options->top_k;
    s.top_p = options->top_p;
    s.min_p = options->min_p;
    s.repeat_penalty = options->repeat_penalty;
    s.presence_penalty = options->presence_penalty;
    s.frequency_penalty = options->frequency_penalty;
    s.repeat_last_n = options->repeat_last_n;
    s.seed = (uint64_t)r->seed;
    s.bias = bias;
    s.n_bias = options->logit_bias.n;
    kvant_status status = kvant_sampler_create(&r->sampler, r->model, &s);
    return status ? cli_failed(status) : CLI_DONE;
}

void cli_runtime_close(cli_runtime *r) {
    cli_interrupt_watch(NULL);
    kvant_sampler_close(r->sampler);
    kvant_session_close(r->session);
    kvant_model_close(r->model);
    *r = (cli_runtime){0};
}

kvant_context_policy cli_context_policy(const cli_options *options) {
    const char *name = options->context ? options->context : "stop";
    return strcmp(name, "shift") == 0    ? KVANT_CONTEXT_SHIFT
           : strcmp(name, "window") == 0 ? KVANT_CONTEXT_WINDOW
                                         : KVANT_CONTEXT_STOP;
}

kvant_generate_options cli_generate_options(const cli_options *options) {
    kvant_generate_options g = KVANT_GENERATE_OPTIONS_INIT;
    g.max_tokens = options->n_predict;
    g.ignore_end = options->ignore_eos;
    g.context = cli_context_policy(options);
    g.n_keep = options->n_keep;
    g.trim = options->trim;
    g.stop = options->stop.at;
    g.n_stop = options->stop.n;
    return g;
}

int cli_tokenize(kvant_token **out, size_t *n_tokens, const kvant_model *model, const char *text,
                 size_t n_bytes, int flags) {
    size_t capacity = 3 * n_bytes + 3; /* always enough */
    kvant_token *tokens = kv_alloc(capacity, sizeof *tokens);
    if (!tokens) return cli_failed(KVANT_NO_MEMORY);
    kvant_status status = kvant_tokenize(model, text, n_bytes, flags, tokens, capacity, n_tokens);
    if (status) {
        kv_free(tokens);
        return cli_failed(status);
    }
    *out = tokens;
    return CLI_DONE;
}
