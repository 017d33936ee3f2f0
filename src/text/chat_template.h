/* chat_template.h: a list of messages to the tokens a model was trained to see. Built-in formats, one row
 * each of chat_templates.inc, picked by what the file's own template contains. The interface knows nothing of
 * how a format is written, so that an interpreter of the file's template can stand behind it.
 *
 * What a format writes itself is markup, where control tokens are recognized; a message's text is content,
 * where they never are. */
#pragma once

#include "base/status.h"
#include "text/tokenizer.h"

typedef struct kv_chat_message {
    const char *role, *text; /* role: "system" "user" "assistant" */
} kv_chat_message;

typedef struct kv_chat_renderer kv_chat_renderer;

/* By `name` if given; else by the file's template (template_size 0: the file has none); else by the control
 * tokens of the vocabulary. The template also says whether there is a default system message and a BOS.
 * Unknown name, foreign template, no such tokens: KVANT_UNSUPPORTED and the names there are. Keeps nothing of
 * its arguments. */
kv_status kv_chat_renderer_create(kv_chat_renderer **out, const char *name, const char *file_template,
                                  size_t template_size, const kv_tokenizer *t);
void kv_chat_renderer_destroy(kv_chat_renderer *r);
const char *kv_chat_renderer_name(const kv_chat_renderer *r);
/* Names of the formats, NULL behind the last. */
const char *kv_chat_format_name(int32_t i);

/* Appends to `out` the tokens of messages [0, n), then, if `reply`, the opening of an assistant message. `t`
 * is the tokenizer the renderer was created with. On failure `out` is as before.
 *
 * Rendering is a prefix code: the tokens of the first k messages are a prefix of those of all n; ends[i] (n
 * entries, may be NULL) is out->count behind message i. So [ends[i - 1], ends[i]) may be cut out as a whole.
 * n = 0 gives what stands in front of a first message that is not a system message: a BOS exactly if the
 * model wants one, and the template's default system message; ends[0] counts it in.
 *
 * In gemma, llama2 and mistral the system message is the beginning of the first user message: cutting that
 * one out leaves an opening without a close. They, as their models, take an optional system message, then
 * user and assistant in turns. An unknown or misplaced role is KVANT_INVALID and says what the format takes.
 */
kv_status kv_chat_render(const kv_chat_renderer *r, const kv_tokenizer *t, const kv_chat_message *messages,
                         size_t n, bool reply, kv_tokens *out, size_t *ends);
