/* chat_template.h: a list of messages to the pieces of text a model was trained to see. Built-in renderers, one row
 * of a table each, picked by what the file's own template contains. The interface knows nothing of how a template is
 * written, so that an interpreter of the file's template can take a renderer's place.
 *
 * A renderer emits pieces that are either control (the template's own markup, where control tokens are recognized) or
 * content (a message's text, where they never are). */
#pragma once

#include "base/status.h"
#include "text/tokenizer.h"

typedef struct kv_chat_message {
    const char *role, *text; /* "system" "user" "assistant" */
} kv_chat_message;

typedef struct kv_chat_renderer kv_chat_renderer;

/* By name, or by the file's template (may be NULL: then by what the vocabulary has); never NULL on success. */
kv_status kv_chat_renderer_pick(const kv_chat_renderer **out, const char *name, const char *file_template,
                                size_t template_size, const kv_tokenizer *t);
const char *kv_chat_renderer_name(const kv_chat_renderer *r);

/* Appends to `out` the tokens of messages [0, n), then, if `reply`, the opening of an assistant message. Rendering
 * is a prefix code: the tokens of the first k messages are a prefix of those of all n wherever the format allows it;
 * the end of each message's tokens goes to ends[i] (n entries, may be NULL). A BOS comes first exactly if the model
 * wants one. An unknown or misplaced role is KVANT_INVALID and says what the format takes. */
kv_status kv_chat_render(const kv_chat_renderer *r, const kv_tokenizer *t, const kv_chat_message *messages, size_t n,
                         bool reply, kv_tokens *out, size_t *ends);
