/* batch.c: several prompts at once. Each has a sequence of its own in one session, and one kvant_eval
 * advances all of them: the weights are read once for all prompts.
 *
 *     example_batch MODEL.gguf
 *
 * A line from stdin is a prompt. Prints each with the likeliest next tokens behind it,
 * whether or not the model ends its text among them. */
#include <kvant.h>

#include <stdio.h>
#include <string.h>

enum { MOST_PROMPTS = 16, PROMPT_TOKENS = 256, NEW_TOKENS = 24 };

typedef struct batch {
    kvant_model *model;
    kvant_session *session;
    int32_t n_vocab, n;
    kvant_token tokens[MOST_PROMPTS][PROMPT_TOKENS + NEW_TOKENS];
    size_t n_tokens[MOST_PROMPTS], n_prompt[MOST_PROMPTS];
} batch;

/* The lines of stdin, each into a sequence of its own. */
static kvant_status read_prompts(batch *b) {
    char line[1024];
    kvant_status status = KVANT_OK;
    while (!status && b->n < MOST_PROMPTS && fgets(line, sizeof line, stdin)) {
        size_t *n = &b->n_prompt[b->n];
        line[strcspn(line, "\n")] = 0;
        status = kvant_tokenize(b->model, line, strlen(line), KVANT_TOKENIZE_BOS_EOS, b->tokens[b->n],
                                PROMPT_TOKENS, n);
        if (!status && *n) b->n_tokens[b->n++] = *n;
    }
    return status;
}

static kvant_status open_batch(batch *b, const char *path) {
    kvant_session_options options = KVANT_SESSION_OPTIONS_INIT;
    kvant_model_info info = KVANT_MODEL_INFO_INIT;
    kvant_status status = kvant_model_open(&b->model, path, NULL);
    if (!status) status = read_prompts(b);
    options.n_sequences = MOST_PROMPTS;
    options.n_ctx = MOST_PROMPTS * (PROMPT_TOKENS + NEW_TOKENS);
    if (!status) status = kvant_session_create(&b->session, b->model, &options);
    if (!status) kvant_model_get_info(b->model, &info);
    b->n_vocab = info.n_vocab;
    return status;
}

static kvant_token likeliest(const float *logits, int32_t n_vocab) {
    kvant_token best = 0;
    for (kvant_token t = 1; t < n_vocab; t++)
        if (logits[t] > logits[best]) best = t;
    return best;
}

/* Evaluates what each sequence has not seen yet, and appends a token to each. `seen`: tokens evaluated so
 * far. */
static kvant_status step(batch *b, size_t *seen) {
    kvant_chunk chunks[MOST_PROMPTS];
    for (int32_t i = 0; i < b->n; i++) {
        int32_t n_new = (int32_t)(b->n_tokens[i] - seen[i]);
        chunks[i] = (kvant_chunk){i, b->tokens[i] + seen[i], n_new, KVANT_LOGITS_LAST};
        seen[i] = b->n_tokens[i];
    }
    kvant_status status = b->n ? kvant_eval(b->session, chunks, b->n) : KVANT_OK;
    for (int32_t i = 0; i < b->n && !status; i++)
        b->tokens[i][b->n_tokens[i]++] = likeliest(kvant_logits(b->session, i), b->n_vocab);
    return status;
}

static kvant_status print_texts(const batch *b) {
    char text[16 * 1024];
    for (int32_t i = 0; i < b->n; i++) {
        size_t n = 0;
        kvant_status status =
            kvant_detokenize(b->model, b->tokens[i], b->n_tokens[i], false, text, sizeof text, &n);
        if (status) return status;
        printf("%d: %.*s\n", i, (int)n, text);
    }
    return KVANT_OK;
}

int main(int argc, char **argv) {
    static batch b;
    size_t seen[MOST_PROMPTS] = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL.gguf\n", argv[0]);
        return 2;
    }
    kvant_status status = open_batch(&b, argv[1]);
    for (int32_t s = 0; s < NEW_TOKENS && !status; s++) status = step(&b, seen);
    if (!status) status = print_texts(&b);
    if (status) fprintf(stderr, "%s\n", kvant_last_error());
    kvant_session_close(b.session);
    kvant_model_close(b.model);
    return status ? 1 : 0;
}
