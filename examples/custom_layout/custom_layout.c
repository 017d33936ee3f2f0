/* custom_layout.c: a KV cache in a layout of one's own. Registers the layout of pairs8.c, then continues a
 * prompt twice, with the cache in plain rows and in pairs8, and shows that the text is the same.
 *
 *     example_custom_layout MODEL.gguf
 *
 * The prompt is a line from stdin. Exit status: 0, 1 if something failed or the texts differ, 2 for wrong
 * use.
 */
#include <kvant.h>
#include <kvant_ext.h>

#include <stdio.h>
#include <string.h>

enum { MAX_PROMPT = 256, NEW_TOKENS = 24 };

extern const kvant_layout_desc kvant_layout; /* pairs8.c */

typedef struct continuation {
    kvant_token tokens[MAX_PROMPT + NEW_TOKENS];
    size_t n;
} continuation;

static kvant_token likeliest(const float *logits, int32_t n_vocab) {
    kvant_token best = 0;
    for (kvant_token t = 1; t < n_vocab; t++)
        if (logits[t] > logits[best]) best = t;
    return best;
}

/* Appends the likeliest tokens to the prompt in `c`, with the cache in a layout. The activations stay floats,
 * so that both layouts compute the same numbers but for the order of additions. */
static kvant_status continue_text(continuation *c, kvant_model *model, const char *layout) {
    kvant_session_options options = KVANT_SESSION_OPTIONS_INIT;
    kvant_model_info info = KVANT_MODEL_INFO_INIT;
    kvant_session *session = NULL;
    size_t seen = 0;
    options.n_ctx = MAX_PROMPT + NEW_TOKENS;
    options.type_k = options.type_v = "q8_0";
    options.layout_k = options.layout_v = layout;
    options.act = KVANT_ACT_F32;
    kvant_model_get_info(model, &info);
    kvant_status status = kvant_session_create(&session, model, &options);
    for (int i = 0; i < NEW_TOKENS && !status; i++) {
        kvant_chunk chunk = {0, c->tokens + seen, (int32_t)(c->n - seen), KVANT_LOGITS_LAST};
        status = kvant_eval(session, &chunk, 1);
        seen = c->n;
        if (!status) c->tokens[c->n++] = likeliest(kvant_logits(session, 0), info.n_vocab);
    }
    kvant_session_close(session);
    return status;
}

static kvant_status print_text(const char *layout, const kvant_model *model, const continuation *c) {
    char text[8192];
    size_t n = 0;
    kvant_status status = kvant_detokenize(model, c->tokens, c->n, false, text, sizeof text, &n);
    if (!status) printf("%-6s | %.*s\n", layout, (int)n, text);
    return status;
}

/* 1 if the two texts differ. */
static int compare(kvant_model *model, const char *prompt, kvant_status *status) {
    continuation rows = {.n = 0}, pairs = {.n = 0};
    *status = kvant_tokenize(model, prompt, strlen(prompt), KVANT_TOKENIZE_BOS_EOS, rows.tokens, MAX_PROMPT,
                             &rows.n);
    pairs = rows;
    if (!*status) *status = continue_text(&rows, model, "rows");
    if (!*status) *status = continue_text(&pairs, model, kvant_layout.name);
    if (!*status) *status = print_text("rows", model, &rows);
    if (!*status) *status = print_text(kvant_layout.name, model, &pairs);
    if (*status) return 1;
    bool same = rows.n == pairs.n && !memcmp(rows.tokens, pairs.tokens, rows.n * sizeof *rows.tokens);
    printf("the texts %s\n", same ? "are the same" : "DIFFER");
    return !same;
}

int main(int argc, char **argv) {
    char prompt[1024] = "";
    kvant_model *model = NULL;
    int differ = 1;
    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL.gguf\n", argv[0]);
        return 2;
    }
    if (!fgets(prompt, sizeof prompt, stdin)) snprintf(prompt, sizeof prompt, "The capital of France is");
    prompt[strcspn(prompt, "\n")] = 0;
    kvant_status status = kvant_register_layout(&kvant_layout);
    if (!status) status = kvant_model_open(&model, argv[1], NULL);
    if (!status) differ = compare(model, prompt, &status);
    if (status) fprintf(stderr, "%s\n", kvant_last_error());
    kvant_model_close(model);
    return status || differ;
}
