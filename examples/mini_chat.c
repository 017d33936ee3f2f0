/* mini_chat.c: a conversation in the terminal, by the public API alone.
 *
 *     example_mini_chat MODEL.gguf
 *
 * A line from stdin is a message, the reply streams to stdout; when the context is full the oldest messages
 * go. */
#include <kvant.h>

#include <stdio.h>
#include <string.h>

static bool print_text(void *user, const char *text, size_t n_bytes) {
    (void)user;
    return fwrite(text, 1, n_bytes, stdout) == n_bytes && fflush(stdout) == 0;
}

static kvant_status converse(kvant_chat *chat, kvant_sampler *sampler) {
    kvant_generate_options options = KVANT_GENERATE_OPTIONS_INIT;
    options.max_tokens = 256;
    options.context = KVANT_CONTEXT_SHIFT;
    options.text = print_text;
    char line[4096];
    kvant_status status = KVANT_OK;
    while (!status && fgets(line, sizeof line, stdin)) {
        kvant_generate_result result = KVANT_GENERATE_RESULT_INIT;
        line[strcspn(line, "\n")] = 0;
        if (!*line) continue;
        status = kvant_chat_add(chat, "user", line);
        if (!status) status = kvant_chat_reply(chat, sampler, &options, &result);
        putchar('\n');
    }
    return status;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL.gguf\n", argv[0]);
        return 2;
    }
    kvant_model *model = NULL;
    kvant_session *session = NULL;
    kvant_sampler *sampler = NULL;
    kvant_chat *chat = NULL;
    kvant_session_options session_options = KVANT_SESSION_OPTIONS_INIT;
    kvant_sampler_options sampler_options = KVANT_SAMPLER_OPTIONS_INIT;
    kvant_chat_options chat_options = KVANT_CHAT_OPTIONS_INIT;
    session_options.n_ctx = 2048;
    session_options.type_k = session_options.type_v = "q8_0";
    chat_options.context = KVANT_CONTEXT_SHIFT;
    sampler_options.temperature = 0; /* always the likeliest token */

    kvant_status status = kvant_model_open(&model, argv[1], NULL);
    if (!status) status = kvant_session_create(&session, model, &session_options);
    if (!status) status = kvant_sampler_create(&sampler, model, &sampler_options);
    if (!status) status = kvant_chat_create(&chat, session, 0, &chat_options);
    if (!status) status = kvant_chat_add(chat, "system", "Answer briefly and in English.");
    if (!status) status = converse(chat, sampler);
    if (status) fprintf(stderr, "%s\n", kvant_last_error());

    kvant_chat_close(chat);
    kvant_sampler_close(sampler);
    kvant_session_close(session);
    kvant_model_close(model);
    return status ? 1 : 0;
}
