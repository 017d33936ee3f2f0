/* cmd_tokenize.c: the tokens of a text, as a table or in one of three plain forms for scripts. */
#include "base/memory.h"
#include "cli.h"
#include "console.h"
#include "input.h"
#include "runtime.h"

#include <stdio.h>
#include <string.h>

/* The piece with what would break a line or is no character written as escapes. */
static void print_piece(const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c == '\\')
            fputs("\\\\", stdout);
        else if (c < 32 || c == 127)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static int print_token(const kvant_model *model, const cli_options *options, kvant_token token) {
    const char *bytes;
    size_t n;
    kvant_status status = kvant_token_bytes(model, token, true, &bytes, &n);
    if (status) return cli_failed(status);
    if (!options->pieces) printf("%7d  ", token);
    print_piece(bytes, n);
    putchar('\n');
    return CLI_DONE;
}

static int print_tokens(const kvant_model *model, const cli_options *options, const kvant_token *tokens,
                        size_t n) {
    if (options->count) {
        printf("%zu\n", n);
        return CLI_DONE;
    }
    int status = CLI_DONE;
    for (size_t i = 0; i < n && !status && !ferror(stdout); i++) {
        if (options->ids)
            printf("%s%d", i ? " " : "", tokens[i]);
        else
            status = print_token(model, options, tokens[i]);
    }
    if (options->ids) putchar('\n');
    return status;
}

int cli_run_tokenize(const cli_options *options) {
    if (options->ids + options->pieces + options->count > 1)
        return cli_wrong("--ids, --pieces and --count exclude each other");
    cli_text text = {0};
    cli_runtime r = {0};
    kvant_token *tokens = NULL;
    size_t n = 0;
    int flags = (options->bos ? KVANT_TOKENIZE_BOS_EOS : 0) | (options->special ? KVANT_TOKENIZE_SPECIAL : 0);
    int status = cli_text_from_options(&text, options);
    if (!status) status = cli_runtime_open_model(&r, options, true);
    if (!status) status = cli_tokenize(&tokens, &n, r.model, text.at, text.n_bytes, flags);
    if (!status) status = print_tokens(r.model, options, tokens, n);
    kv_free(tokens);
    cli_runtime_close(&r);
    cli_text_clear(&text);
    return status;
}
