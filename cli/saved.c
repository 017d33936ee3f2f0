/* saved.c: a file that is not there is the beginning of a session, not a fault. */
#include "saved.h"

#include "base/memory.h"
#include "cli.h"
#include "console.h"
#include "kvant_tools.h"
#include "messages.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool cli_saved_exists(const char *path) { return access(path, F_OK) == 0; }

kvant_status cli_saved_accept(const cli_runtime *r) {
    size_t n = (size_t)kvant_seq_tokens(r->session, 0);
    kvant_token *tokens = kv_alloc(n, sizeof *tokens);
    if (!tokens) return KVANT_NO_MEMORY;
    kvant_status status = kvant_seq_get_tokens(r->session, 0, tokens, n, &n);
    for (size_t i = 0; !status && i < n; i++)
        if (tokens[i] >= 0) kvant_sampler_accept(r->sampler, tokens[i]);
    kv_free(tokens);
    return status;
}

int cli_saved_reuse(const cli_runtime *r, const char *path, const kvant_token *tokens, size_t n_tokens,
                    size_t *n_reused) {
    *n_reused = 0;
    if (!cli_saved_exists(path)) return CLI_DONE;
    kvant_status status = kvant_seq_load(r->session, 0, path);
    if (!status) status = kvant_seq_reuse(r->session, 0, tokens, n_tokens, n_reused);
    if (!status) status = cli_saved_accept(r);
    return status ? cli_failed(status) : CLI_DONE;
}

/* ---- conversations ---- */

/* "path.kv"; owned by the caller (kv_free). */
static char *cells_path(const char *path) {
    size_t n = strlen(path);
    char *out = kv_alloc(n + 4, 1);
    if (!out) return NULL;
    memcpy(out, path, n);
    memcpy(out + n, ".kv", 4);
    return out;
}

int cli_saved_put_chat(const cli_runtime *r, const kvant_chat *chat, const char *path) {
    cli_messages messages;
    char *cells = cells_path(path);
    if (!cells || cli_messages_from_chat(&messages, chat)) {
        kv_free(cells);
        return cli_failed(KVANT_NO_MEMORY);
    }
    int exit_status = cli_messages_save(&messages, r->info.name, path);
    if (!exit_status && kvant_chat_save(chat, cells)) exit_status = cli_failed(KVANT_FAILED);
    if (!exit_status)
        cli_note("[%zu messages saved to %s, the %lld tokens that were read of them to %s]", messages.count,
                 path, (long long)kvant_seq_tokens(r->session, 0), cells);
    cli_messages_clear(&messages);
    kv_free(cells);
    return exit_status;
}

static bool holds(const kvant_chat *chat, const cli_messages *messages) {
    cli_messages held;
    if (cli_messages_from_chat(&held, chat)) return false;
    bool same = cli_messages_same(&held, messages);
    cli_messages_clear(&held);
    return same;
}

/* The chat, which has the messages, as it was when they were saved. */
static int get_cells(const cli_runtime *r, kvant_chat *chat, const cli_messages *messages, const char *path) {
    if (!cli_saved_exists(path)) return CLI_DONE;
    if (kvant_chat_load(chat, path)) {
        cli_note("[%s; the conversation will be read again]", kvant_last_error());
        return CLI_DONE;
    }
    if (holds(chat, messages)) return cli_saved_accept(r) ? cli_failed(KVANT_NO_MEMORY) : CLI_DONE;
    cli_note("[%s: of another conversation; this one will be read again]", path);
    return cli_messages_to_chat(messages, chat) ? CLI_FAILED : CLI_DONE;
}

int cli_saved_get_chat(const cli_runtime *r, kvant_chat *chat, const char *path) {
    cli_messages messages;
    int exit_status = cli_messages_load(&messages, path);
    if (exit_status) return exit_status;
    char *cells = cells_path(path);
    if (!cells)
        exit_status = cli_failed(KVANT_NO_MEMORY);
    else
        exit_status =
            cli_messages_to_chat(&messages, chat) ? CLI_FAILED : get_cells(r, chat, &messages, cells);
    if (!exit_status)
        cli_note("[%zu messages loaded from %s, %lld tokens of them need not be read again]", messages.count,
                 path, (long long)kvant_seq_tokens(r->session, 0));
    cli_messages_clear(&messages);
    kv_free(cells);
    return exit_status;
}

/* ---- inspect ---- */

static void describe_heads(char *out, size_t capacity, const char *type, int32_t dim, int32_t rotation) {
    int n = snprintf(out, capacity, "%s, heads of %d", type, dim);
    if (rotation > 1) snprintf(out + n, capacity - (size_t)n, ", rotated by %d", rotation);
}

static int print_row(const kvant_snapshot *snapshot, int32_t i) {
    kvant_snapshot_layers row = KVANT_SNAPSHOT_LAYERS_INIT;
    char k[96], v[96], centre[48] = "";
    kvant_status status = kvant_snapshot_row(snapshot, i, &row);
    if (status) return cli_failed(status);
    describe_heads(k, sizeof k, row.type_k, row.k_dim, row.k_rotation);
    describe_heads(v, sizeof v, row.type_v, row.v_dim, row.v_rotation);
    if (row.centre_pairs) snprintf(centre, sizeof centre, ", %d pairs centred", row.centre_pairs);
    printf("  layers %d-%d: %d KV heads; K %s%s, %d dimensions by position; V %s; %lld cells, %s\n",
           row.first_layer, row.last_layer, row.n_kv_heads, k, centre, row.n_rot, v, (long long)row.n_cells,
           cli_size_text(row.n_bytes).text);
    return CLI_DONE;
}

int cli_saved_inspect(const char *path) {
    kvant_snapshot *snapshot = NULL;
    kvant_status failure = kvant_snapshot_open(&snapshot, path);
    if (failure) return cli_failed(failure);
    kvant_snapshot_info info = KVANT_SNAPSHOT_INFO_INIT;
    kvant_snapshot_get_info(snapshot, &info);
    printf("%s: saved sequence, version %d, %s\n", path, info.version, cli_size_text(info.n_bytes).text);
    printf("model    %s, %s, %d layers, embedding %d, %d tokens in the vocabulary, fingerprint %s\n",
           info.model, info.architecture, info.n_layers, info.n_embd, info.n_vocab, info.fingerprint);
    printf("tokens   %lld, up to position %lld, in %d %s with %d %s\n", (long long)info.n_tokens,
           (long long)info.end, info.n_spans, info.n_spans == 1 ? "span" : "spans", info.n_turns,
           info.n_turns == 1 ? "turn" : "turns");
    if (info.note_bytes) printf("note     a conversation, %lld bytes\n", (long long)info.note_bytes);
    int status = CLI_DONE;
    for (int32_t i = 0; i < info.n_rows && !status; i++) status = print_row(snapshot, i);
    kvant_snapshot_close(snapshot);
    return status;
}
