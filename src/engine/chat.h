/* chat.h: what a conversation consists of, for chat.c, which owns it, and for what saves and loads it. */
#pragma once

#include "engine/engine.h"

typedef struct kv_chat_entry {
    char *role, *text; /* owned */
    size_t begin, end; /* its tokens in the line; equal once it was dropped */
    bool in_context;
} kv_chat_entry;

typedef struct kv_chat_entries {
    kv_chat_entry *at;
    size_t count, capacity;
} kv_chat_entries;

struct kvant_chat {
    kvant_session *session;
    int32_t seq;
    kvant_context_policy policy;
    int32_t n_keep; /* of the last reply's options */
    kv_chat_renderer *renderer;
    size_t n_head;     /* tokens in front of a first message that is not the system's: of no message, never
                          dropped */
    kv_tokens closing; /* what the format puts behind a reply */
    kv_chat_entries messages;
    kv_tokens line;
    size_t reply_begin; /* of the reply being generated */
    size_t reply_lost;  /* tokens of it that the line has dropped */
};

/* Frees the messages, then the list. */
void kv_chat_entries_clear(kv_chat_entries *messages);
