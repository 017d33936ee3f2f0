/* cmd_inspect.c: everything about a model file on stdout: the file alone first, so that a file this program
 * cannot run is still shown; then what running it would take. */
#include "cli.h"
#include "console.h"
#include "kvant_tools.h"
#include "report.h"
#include "saved.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_ITEMS = 8, SHOWN_BYTES = 100 };

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* Text from a file, on one line. */
static void print_text(const char *text) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c < 32 || c == 127)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static int print_values(const kvant_file *file, int64_t n_values) {
    printf("\nmetadata: %lld keys\n", (long long)n_values);
    for (int64_t i = 0; i < n_values; i++) {
        kvant_file_value value = KVANT_FILE_VALUE_INIT;
        char text[SHOWN_BYTES + 1];
        size_t n_bytes = 0;
        kvant_status status = kvant_file_get_value(file, i, &value);
        if (!status) status = kvant_file_value_text(file, i, SHOWN_ITEMS, text, sizeof text, &n_bytes);
        if (status) return cli_failed(status);
        printf("  %-46s %s", value.key, value.type);
        if (value.is_array) printf("[%lld]", (long long)value.count);
        printf(" = ");
        print_text(text);
        if (n_bytes >= sizeof text)
            printf("... (%zu bytes)", n_bytes);
        else if (value.count > SHOWN_ITEMS)
            printf(", ...");
        putchar('\n');
    }
    return CLI_DONE;
}

typedef struct type_total {
    const char *type;
    int64_t n_tensors, n_bytes;
} type_total;

static void add_total(type_total *totals, int *n, int most, const kvant_file_tensor *t) {
    int i = 0;
    while (i < *n && strcmp(totals[i].type, t->type) != 0) i++;
    if (i == most) return;
    if (i == *n) totals[(*n)++] = (type_total){.type = t->type};
    totals[i].n_tensors++;
    totals[i].n_bytes += t->n_bytes;
}

static void print_tensor(const kvant_file_tensor *t, const kvant_weight_plan *plan) {
    char shape[96];
    int n = 0;
    for (int d = 0; d < t->n_dims; d++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld", d ? " x " : "", (long long)t->dims[d]);
    printf("  %-32s %-7s %-12s %-20s %12lld bytes\n", t->name, t->type, t->n_dims > 1 ? plan->layout : "rows",
           shape, (long long)t->n_bytes);
}

static int print_tensors(const kvant_file *file, const kvant_file_info *info, const char *cpu_mask) {
    enum { MOST_TYPES = 64 };
    type_total totals[MOST_TYPES];
    int n_totals = 0;
    printf("\ntensors: %lld (type, layout in memory, shape with the row's length first, bytes in the file)\n",
           (long long)info->n_tensors);
    for (int64_t i = 0; i < info->n_tensors; i++) {
        kvant_file_tensor tensor = KVANT_FILE_TENSOR_INIT;
        kvant_weight_plan plan = KVANT_WEIGHT_PLAN_INIT;
        kvant_status status = kvant_file_get_tensor(file, i, &tensor);
        if (!status) status = kvant_get_weight_plan(&plan, tensor.type, cpu_mask);
        if (status) return cli_failed(status);
        print_tensor(&tensor, &plan);
        add_total(totals, &n_totals, MOST_TYPES, &tensor);
    }
    printf("\ntypes: kernel and layout of the matrix product\n");
    for (int i = 0; i < n_totals; i++) {
        kvant_weight_plan plan = KVANT_WEIGHT_PLAN_INIT;
        kvant_status status = kvant_get_weight_plan(&plan, totals[i].type, cpu_mask);
        if (status) return cli_failed(status);
        printf("  %-7s %5lld tensors %12s   %s, %s, %s\n", totals[i].type, (long long)totals[i].n_tensors,
               cli_size_text(totals[i].n_bytes).text, plan.device, plan.layout, plan.kernel);
    }
    return CLI_DONE;
}

static int inspect_file(const cli_options *options) {
    kvant_file *file = NULL;
    kvant_file_info info = KVANT_FILE_INFO_INIT;
    kvant_status failure = kvant_file_open(&file, options->model);
    if (failure) return cli_failed(failure);
    kvant_file_get_info(file, &info);
    printf("%s: GGUF version %d, %s\n", options->model, info.version, cli_size_text(info.n_bytes).text);
    printf("parameters %lld, %.2f bits each\n", (long long)info.n_params,
           info.n_params ? 8.0 * (double)info.tensor_bytes / (double)info.n_params : 0.0);
    int status = print_values(file, info.n_values);
    if (!status) status = print_tensors(file, &info, options->cpu_mask);
    kvant_file_close(file);
    return status;
}

static void print_special(const kvant_model *model, const char *name, kvant_token token) {
    const char *bytes;
    size_t n;
    if (token >= 0 && !kvant_token_bytes(model, token, true, &bytes, &n))
        printf("  %-6s %d %.*s\n", name, token, (int)n, bytes);
    else
        printf("  %-6s none\n", name);
}

static void print_tokenizer(const cli_runtime *r) {
    printf("\ntokenizer: %d tokens\n", r->info.n_vocab);
    print_special(r->model, "start", kvant_token_bos(r->model));
    print_special(r->model, "end", kvant_token_eos(r->model));
    printf("  ends a reply:");
    for (kvant_token t = 0; t < r->info.n_vocab; t++) {
        const char *bytes;
        size_t n;
        if (kvant_token_is_end(r->model, t) && !kvant_token_bytes(r->model, t, true, &bytes, &n))
            printf(" %d %.*s", t, (int)n, bytes);
    }
    putchar('\n');
}

static void print_session(const cli_runtime *r) {
    const kvant_session_info *s = &r->session_info;
    put("\nKV cache: %d tokens, %s per token, %s", s->n_ctx, cli_size_text(s->kv_bytes_per_token).text,
        cli_size_text(s->kv_bytes_total).text);
    cli_report_kv(r, put);
    put("memory   weights %s; %s of them read for each decoded token", cli_size_text(r->info.n_bytes).text,
        cli_size_text(s->weight_bytes_per_token).text);
    put("threads  %d, kernels %s", r->info.n_threads, r->info.cpu);
    cli_report_devices(r, put);
}

static void print_template(const cli_runtime *r) {
    kvant_chat *chat = NULL;
    kvant_status status = kvant_chat_create(&chat, r->session, 0, NULL);
    put("\nmessages: %s", status ? kvant_last_error() : kvant_chat_template(chat));
    kvant_chat_close(chat);
}

static int inspect_runtime(const cli_options *options) {
    cli_runtime r;
    kvant_session_options s = cli_session_options(options);
    int status = cli_runtime_open_model(&r, options, false);
    if (!status && !options->kv) print_tokenizer(&r);
    if (!status) status = cli_runtime_open_session(&r, &s);
    if (!status && !options->kv) print_template(&r);
    if (!status) print_session(&r);
    if (!status && options->dump_plan && cli_report_plan(&r, put)) status = cli_failed(KVANT_FAILED);
    cli_runtime_close(&r);
    return status;
}

int cli_run_inspect(const cli_options *options) {
    if (kvant_is_snapshot(options->model)) return cli_saved_inspect(options->model);
    int status = options->kv ? CLI_DONE : inspect_file(options);
    return status ? status : inspect_runtime(options);
}
