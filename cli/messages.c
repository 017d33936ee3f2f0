/* messages.c: the list, and its JSON by jansson, which takes nothing but valid UTF-8. */
#include "messages.h"

#include "base/file.h"
#include "base/memory.h"
#include "cli.h"
#include "console.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void clear_message(cli_message *m) {
    kv_free(m->role);
    kv_free(m->text);
}

void cli_messages_clear(cli_messages *m) {
    for (size_t i = 0; i < m->count; i++) clear_message(&m->at[i]);
    kv_vec_clear(m);
}

static kvant_status copy_message(cli_message *out, const char *role, const char *text) {
    *out = (cli_message){kv_strdup(role), kv_strdup(text)};
    if (out->role && out->text) return KVANT_OK;
    clear_message(out);
    return KVANT_NO_MEMORY;
}

kvant_status cli_messages_add(cli_messages *m, const char *role, const char *text) {
    cli_message message;
    kvant_status status = copy_message(&message, role, text);
    if (status || kv_vec_push(m, message)) return status;
    clear_message(&message);
    return KVANT_NO_MEMORY;
}

kvant_status cli_messages_set_system(cli_messages *m, const char *text) {
    cli_message message;
    kvant_status status = copy_message(&message, "system", text);
    if (status) return status;
    bool has_system = m->count && strcmp(m->at[0].role, "system") == 0;
    if (!has_system && !kv_vec_reserve(m, m->count + 1)) {
        clear_message(&message);
        return KVANT_NO_MEMORY;
    }
    if (has_system) {
        clear_message(&m->at[0]);
    } else {
        memmove(m->at + 1, m->at, m->count++ * sizeof *m->at);
    }
    m->at[0] = message;
    if (!*text) {
        clear_message(&m->at[0]);
        memmove(m->at, m->at + 1, --m->count * sizeof *m->at);
    }
    return KVANT_OK;
}

bool cli_messages_same(const cli_messages *a, const cli_messages *b) {
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++)
        same = strcmp(a->at[i].role, b->at[i].role) == 0 && strcmp(a->at[i].text, b->at[i].text) == 0;
    return same;
}

kvant_status cli_messages_from_chat(cli_messages *out, const kvant_chat *chat) {
    *out = (cli_messages){0};
    kvant_status status = KVANT_OK;
    for (int32_t i = 0; i < kvant_chat_count(chat) && !status; i++) {
        const char *role, *text;
        bool in_context;
        status = kvant_chat_message(chat, i, &role, &text, &in_context);
        if (!status) status = cli_messages_add(out, role, text);
    }
    if (status) cli_messages_clear(out);
    return status;
}

static kvant_status refill(const cli_messages *m, kvant_chat *chat) {
    kvant_status status = kvant_chat_clear(chat);
    for (size_t i = 0; i < m->count && !status; i++)
        status = kvant_chat_add(chat, m->at[i].role, m->at[i].text);
    return status;
}

kvant_status cli_messages_to_chat(const cli_messages *m, kvant_chat *chat) {
    cli_messages before;
    kvant_status status = cli_messages_from_chat(&before, chat);
    if (status) return status;
    status = refill(m, chat);
    if (status) {
        char *message = kv_strdup(kvant_last_error());
        kvant_status restored = refill(&before, chat);
        cli_fault("%s%s", message ? message : "out of memory", restored ? "; the conversation is lost" : "");
        kv_free(message);
    }
    cli_messages_clear(&before);
    return status;
}

/* ---- the file ---- */

static json_t *to_json(const cli_messages *m, const char *model) {
    json_t *list = json_array();
    for (size_t i = 0; i < m->count; i++) {
        json_t *message = json_pack("{s:s, s:s}", "role", m->at[i].role, "content", m->at[i].text);
        if (!message) {
            cli_wrong("message %zu is not valid UTF-8, which the file has to be", i + 1);
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, message);
    }
    return json_pack("{s:s, s:o}", "model", model, "messages", list);
}

static kvant_status write_file(const char *path, const char *text) {
    kv_file_writer *w = NULL;
    kvant_status status = kv_file_writer_open(&w, path);
    if (!status) status = kv_file_write(w, text, strlen(text));
    if (!status) status = kv_file_write(w, "\n", 1);
    if (!status) status = kv_file_writer_commit(w);
    kv_file_writer_close(w);
    return status;
}

int cli_messages_save(const cli_messages *m, const char *model, const char *path) {
    json_t *root = to_json(m, model);
    if (!root) return CLI_USAGE;
    char *text = json_dumps(root, JSON_INDENT(2));
    kvant_status status = text ? write_file(path, text) : KVANT_NO_MEMORY;
    free(text);
    json_decref(root);
    return status ? cli_failed(status) : CLI_DONE;
}

static int from_json(cli_messages *out, const json_t *root, const char *path) {
    json_t *list = json_object_get(root, "messages"), *item;
    size_t i;
    if (!json_is_array(list)) return cli_wrong("%s: no list \"messages\" in it", path);
    json_array_foreach(list, i, item) {
        const char *role = json_string_value(json_object_get(item, "role"));
        const char *text = json_string_value(json_object_get(item, "content"));
        if (!role || !text)
            return cli_wrong("%s: message %zu has no \"role\" or no \"content\"", path, i + 1);
        if (cli_messages_add(out, role, text)) return cli_failed(KVANT_NO_MEMORY);
    }
    return CLI_DONE;
}

int cli_messages_load(cli_messages *out, const char *path) {
    *out = (cli_messages){0};
    kv_file_map map = {0};
    kvant_status status = kv_file_map_open(&map, path);
    if (status) return cli_failed(status);
    json_error_t error;
    json_t *root = json_loadb(map.data ? (const char *)map.data : "", map.size, 0, &error);
    kv_file_map_close(&map);
    if (!root) return cli_wrong("%s: line %d: %s", path, error.line, error.text);
    int exit_status = from_json(out, root, path);
    json_decref(root);
    if (exit_status) cli_messages_clear(out);
    return exit_status;
}
