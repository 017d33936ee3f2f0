/* tools_snapshot.c: a look into a saved sequence, for kvant_tools.h. */
#include "cache/snapshot.h"
#include "engine/engine.h"
#include "kvant_tools.h"

struct kvant_snapshot {
    kv_snapshot *snapshot;
    char *model, *architecture, *fingerprint;
};

bool kvant_is_snapshot(const char *path) {
    kv_file_map map = {0};
    if (kv_file_map_open(&map, path)) return false;
    bool is = kv_snapshot_begins(map.data, map.size);
    kv_file_map_close(&map);
    return is;
}

static char *copy_text(kv_byte_text text) { return kv_strndup(text.at, text.size); }

static kv_status open_snapshot(kvant_snapshot *s, const char *path) {
    KV_TRY(kv_snapshot_open(&s->snapshot, path));
    s->model = copy_text(s->snapshot->name);
    s->architecture = copy_text(s->snapshot->architecture);
    s->fingerprint = copy_text(s->snapshot->fingerprint);
    return s->model && s->architecture && s->fingerprint ? KVANT_OK : KVANT_NO_MEMORY;
}

kvant_status kvant_snapshot_open(kvant_snapshot **out, const char *path) {
    kvant_snapshot *s = kv_alloc(1, sizeof *s);
    if (!s) return KVANT_NO_MEMORY;
    kv_status status = open_snapshot(s, path);
    if (status)
        kvant_snapshot_close(s);
    else
        *out = s;
    return status;
}

void kvant_snapshot_close(kvant_snapshot *s) {
    if (!s) return;
    kv_snapshot_close(s->snapshot);
    kv_free(s->model);
    kv_free(s->architecture);
    kv_free(s->fingerprint);
    kv_free(s);
}

static int32_t count_turns(const kv_spans *s) {
    int32_t n = 0;
    for (size_t i = 0; i < s->list.count; i++) {
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++) seen = s->list.at[j].turn == s->list.at[i].turn;
        n += !seen;
    }
    return n;
}

static bool same_heads(const kv_head_code *a, const kv_head_code *b) {
    return a->dim == b->dim && a->width == b->width && a->rotation == b->rotation;
}

/* The layer behind the last that is coded as `first`, from there on. */
static int32_t row_end(const kv_snapshot *s, int32_t first) {
    const kv_snapshot_layer *a = &s->layers[first];
    int32_t end = first + 1;
    for (; end < s->n_layers; end++) {
        const kv_snapshot_layer *b = &s->layers[end];
        if (a->k_dtype != b->k_dtype || a->v_dtype != b->v_dtype || a->n_kv_heads != b->n_kv_heads ||
            a->rope != b->rope || a->group != b->group || a->centre.n_pairs != b->centre.n_pairs ||
            !same_heads(&a->k_head, &b->k_head) || !same_heads(&a->v_head, &b->v_head))
            break;
    }
    return end;
}

void kvant_snapshot_get_info(const kvant_snapshot *snapshot, kvant_snapshot_info *info) {
    const kv_snapshot *s = snapshot->snapshot;
    const kv_spans *spans = &s->groups[0].spans;
    kvant_snapshot_info i = {.model = snapshot->model,
                             .architecture = snapshot->architecture,
                             .fingerprint = snapshot->fingerprint,
                             .version = KV_SNAPSHOT_VERSION,
                             .n_layers = s->n_layers,
                             .n_embd = s->n_embd,
                             .n_vocab = s->n_vocab,
                             .n_tokens = s->n_tokens,
                             .end = kv_spans_end(spans),
                             .n_spans = (int32_t)spans->list.count,
                             .n_turns = count_turns(spans),
                             .n_bytes = (int64_t)s->n_bytes,
                             .note_bytes = (int64_t)s->n_note};
    for (int32_t layer = 0; layer < s->n_layers; i.n_rows++) layer = row_end(s, layer);
    kv_give_struct(info, &i, sizeof i);
}

static size_t row_bytes(const kv_dtype *d, const kv_head_code *code, int32_t n_heads) {
    return kv_dtype_bytes(d, (int64_t)n_heads * code->width);
}

kvant_status kvant_snapshot_row(const kvant_snapshot *snapshot, int32_t index, kvant_snapshot_layers *row) {
    const kv_snapshot *s = snapshot->snapshot;
    int32_t first = 0;
    for (int32_t i = 0; i < index && first < s->n_layers; i++) first = row_end(s, first);
    if (index < 0 || first >= s->n_layers)
        return kv_fail(KVANT_INVALID, "row %d of the snapshot does not exist", index);
    int32_t end = row_end(s, first);
    const kv_snapshot_layer *l = &s->layers[first];
    kvant_snapshot_layers r = {.first_layer = first,
                               .last_layer = end - 1,
                               .type_k = l->k_dtype->name,
                               .type_v = l->v_dtype->name,
                               .n_kv_heads = l->n_kv_heads,
                               .k_dim = l->k_head.dim,
                               .v_dim = l->v_head.dim,
                               .k_rotation = l->k_head.rotation,
                               .v_rotation = l->v_head.rotation,
                               .centre_pairs = l->centre.n_pairs,
                               .n_rot = s->ropes[l->rope].n_rot,
                               .n_cells = s->groups[l->group].n_rows};
    size_t bytes =
        row_bytes(l->k_dtype, &l->k_head, l->n_kv_heads) + row_bytes(l->v_dtype, &l->v_head, l->n_kv_heads);
    r.n_bytes = (int64_t)bytes * r.n_cells * (end - first);
    kv_give_struct(row, &r, sizeof r);
    return KVANT_OK;
}
