/* messages.h: a conversation outside of a session: copied out of a chat, put into one, kept in a file.
 *
 * The file is JSON: {"model": "...", "messages": [{"role": "user", "content": "..."}, ...]} */
#pragma once

#include "kvant.h"

typedef struct cli_message {
    char *role, *text; /* owned */
} cli_message;

typedef struct cli_messages {
    cli_message *at;
    size_t count, capacity;
} cli_messages;

void cli_messages_clear(cli_messages *m);
/* Copies both strings. */
kvant_status cli_messages_add(cli_messages *m, const char *role, const char *text);
/* The system message becomes `text`, or goes if that is empty. */
kvant_status cli_messages_set_system(cli_messages *m, const char *text);

bool cli_messages_same(const cli_messages *a, const cli_messages *b);

kvant_status cli_messages_from_chat(cli_messages *out, const kvant_chat *chat);
/* Replaces the conversation of a chat, or leaves it as it was. */
kvant_status cli_messages_to_chat(const cli_messages *m, kvant_chat *chat);

/* Both return an exit status, after a message that names the file. */
int cli_messages_save(const cli_messages *m, const char *model, const char *path);
int cli_messages_load(cli_messages *out, const char *path);
