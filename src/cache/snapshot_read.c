/* snapshot_read.c: a file into a kv_snapshot. Nothing in it is believed: sizes are compared with what is
 * left, sums are checked for overflow, and the checksum of a section comes before its contents. */
#include "cache/snapshot.h"
#include "cache/snapshot_section.h"

#include <math.h>
#include <string.h>

enum { MAX_LAYERS = 1 << 16, MAX_ROPES = 16, MAX_HEADS = 1 << 14, MAX_HEAD = 1 << 14 };

static kv_status malformed(const char *what) { return kv_fail(KVANT_FORMAT, "malformed: %s", what); }

/* ---- the frame ---- */

typedef struct reader {
    kv_snapshot *s;
    kv_byte_reader file;
    uint32_t n_sections;
} reader;

bool kv_snapshot_begins(const uint8_t *data, size_t size) {
    return size >= sizeof KV_SNAPSHOT_MAGIC && memcmp(data, KV_SNAPSHOT_MAGIC, sizeof KV_SNAPSHOT_MAGIC) == 0;
}

static kv_status read_header(reader *r, size_t size) {
    const uint8_t *start = r->file.at;
    if (!kv_snapshot_begins(start, size)) return kv_fail(KVANT_FORMAT, "not a snapshot of a sequence");
    (void)kv_take_bytes(&r->file, sizeof KV_SNAPSHOT_MAGIC);
    uint32_t version = kv_take_u32(&r->file);
    r->n_sections = kv_take_u32(&r->file);
    uint64_t n_bytes = kv_take_u64(&r->file), hash = kv_take_u64(&r->file);
    if (r->file.failed) return kv_fail(KVANT_FORMAT, "truncated: %zu bytes, less than a header", size);
    if (version != KV_SNAPSHOT_VERSION)
        return kv_fail(KVANT_UNSUPPORTED, "a snapshot of version %u, this program reads %d", version,
                       KV_SNAPSHOT_VERSION);
    if (hash != XXH3_64bits(start, KV_SNAPSHOT_HEADER - 8)) return malformed("the header's checksum differs");
    if (n_bytes != size)
        return kv_fail(KVANT_FORMAT, "%s: %zu bytes, %llu when it was written",
                       size < n_bytes ? "truncated" : "malformed", size, (unsigned long long)n_bytes);
    return KVANT_OK;
}

/* The contents of the next section, which must be of this kind and index. */
static kv_status read_section(reader *r, kv_section kind, uint32_t index, kv_byte_reader *out) {
    const char *name = kv_section_name(kind);
    const uint8_t *start = r->file.at, *letters = kv_take_bytes(&r->file, 4);
    uint32_t i = kv_take_u32(&r->file);
    uint64_t n = kv_take_u64(&r->file), left = kv_bytes_left(&r->file);
    if (r->file.failed || n > left || kv_section_padding(n) + KV_SECTION_TAIL > left - n)
        return kv_fail(KVANT_FORMAT, "malformed: section %s %u does not fit in the file", name, index);
    if (memcmp(letters, name, 4) != 0 || i != index)
        return kv_fail(KVANT_FORMAT, "malformed: section %s %u is missing", name, index);
    const uint8_t *data = kv_take_bytes(&r->file, n);
    const uint8_t *padding = kv_take_bytes(&r->file, kv_section_padding(n));
    uint64_t hash = XXH3_64bits(start, (size_t)(r->file.at - start));
    if (kv_take_u64(&r->file) != hash)
        return kv_fail(KVANT_FORMAT, "damaged: the checksum of section %s %u differs", name, index);
    for (size_t k = 0; k < kv_section_padding(n); k++)
        if (padding[k]) return malformed("padding that is not zero");
    *out = (kv_byte_reader){.at = data, .end = data + n};
    return KVANT_OK;
}

static kv_status check_end(const kv_byte_reader *b, kv_section kind) {
    if (!b->failed && b->at == b->end) return KVANT_OK;
    return kv_fail(KVANT_FORMAT, "malformed: section %s is too %s", kv_section_name(kind),
                   b->failed ? "short" : "long");
}

/* A count between two limits; anything else makes the section a failed one. */
static int32_t take_count(kv_byte_reader *b, uint32_t low, uint32_t high) {
    uint32_t n = kv_take_u32(b);
    if (n >= low && n <= high) return (int32_t)n;
    b->failed = true;
    return (int32_t)low;
}

/* ---- what the sections hold ---- */

static kv_status read_model(kv_snapshot *s, kv_byte_reader *b) {
    s->name = kv_take_text(b);
    s->architecture = kv_take_text(b);
    s->fingerprint = kv_take_text(b);
    s->n_layers = take_count(b, 1, MAX_LAYERS);
    s->n_embd = take_count(b, 1, INT32_MAX);
    s->n_vocab = take_count(b, 1, INT32_MAX);
    return KVANT_OK;
}

static kv_status read_rope(kv_snapshot *s, kv_rope *rope, kv_byte_reader *b) {
    int32_t n_rot = take_count(b, 0, MAX_HEAD);
    rope->pairing = take_count(b, 0, 1) ? KV_ROPE_HALVES : KV_ROPE_ADJACENT;
    rope->magnitude = kv_take_f32(b);
    if (n_rot % 2 || !isfinite(rope->magnitude) || (size_t)n_rot / 2 * 8 > kv_bytes_left(b)) b->failed = true;
    if (b->failed) return KVANT_OK;
    double *freq = kv_arena_alloc(&s->arena, (size_t)n_rot / 2 + 1, sizeof *freq);
    if (!freq) return KVANT_NO_MEMORY;
    for (int32_t i = 0; i < n_rot / 2; i++) {
        freq[i] = kv_take_f64(b);
        if (!isfinite(freq[i])) b->failed = true;
    }
    rope->n_rot = n_rot;
    rope->freq = freq;
    return KVANT_OK;
}

static kv_status read_ropes(kv_snapshot *s, kv_byte_reader *b) {
    s->n_ropes = take_count(b, 1, MAX_ROPES);
    s->ropes = kv_arena_alloc(&s->arena, (size_t)s->n_ropes, sizeof *s->ropes);
    if (!s->ropes) return KVANT_NO_MEMORY;
    for (int32_t i = 0; i < s->n_ropes && !b->failed; i++) KV_TRY(read_rope(s, &s->ropes[i], b));
    return KVANT_OK;
}

static const kv_dtype *find_dtype(kv_byte_text name) {
    for (int32_t i = 0; i < kv_dtype_count(); i++)
        if (kv_byte_text_is(name, kv_dtype_at(i)->name)) return kv_dtype_at(i);
    return NULL;
}

static kv_status read_heads(const kv_dtype **dtype, kv_head_code *code, kv_byte_reader *b) {
    kv_byte_text name = kv_take_text(b);
    const kv_dtype *d = find_dtype(name);
    int32_t dim = take_count(b, 1, MAX_HEAD), width = take_count(b, 1, 2 * MAX_HEAD);
    int32_t rotation = take_count(b, 1, MAX_HEAD);
    if (b->failed) return KVANT_OK;
    if (!d || !d->caches)
        return kv_fail(KVANT_UNSUPPORTED, "cells of type \"%.*s\", which is none of a KV cache here",
                       (int)(name.size < 32 ? name.size : 32), name.at);
    *dtype = d;
    *code = kv_head_code_of(d, dim, rotation > 1);
    if (code->width != width || code->rotation != rotation) b->failed = true;
    return KVANT_OK;
}

static kv_status read_layer(const kv_snapshot *s, kv_snapshot_layer *l, kv_byte_reader *b) {
    KV_TRY(read_heads(&l->k_dtype, &l->k_head, b));
    KV_TRY(read_heads(&l->v_dtype, &l->v_head, b));
    l->n_kv_heads = take_count(b, 1, MAX_HEADS);
    l->rope = take_count(b, 0, (uint32_t)s->n_ropes - 1);
    l->group = take_count(b, 0, (uint32_t)s->n_layers - 1);
    const kv_rope *rope = &s->ropes[l->rope];
    l->centre.n_pairs = take_count(b, 0, (uint32_t)rope->n_rot / 2);
    if (rope->n_rot > l->k_head.dim) b->failed = true;
    return KVANT_OK;
}

static kv_status read_layers(kv_snapshot *s, kv_byte_reader *b) {
    s->layers = kv_arena_alloc(&s->arena, (size_t)s->n_layers, sizeof *s->layers);
    if (!s->layers) return KVANT_NO_MEMORY;
    for (int32_t i = 0; i < s->n_layers && !b->failed; i++) KV_TRY(read_layer(s, &s->layers[i], b));
    return KVANT_OK;
}

static kv_status read_centre(kv_snapshot *s, kv_snapshot_layer *l, kv_byte_reader *b) {
    int32_t n_pairs = l->centre.n_pairs;
    size_t n = (size_t)l->n_kv_heads * (size_t)n_pairs;
    if (n > kv_bytes_left(b) / 12) b->failed = true;
    if (b->failed || !n) return KVANT_OK;
    int32_t *pairs = kv_arena_alloc(&s->arena, n, sizeof *pairs);
    float *mean = kv_arena_alloc(&s->arena, 2 * n, sizeof *mean);
    if (!pairs || !mean) return KVANT_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        pairs[i] = take_count(b, 0, (uint32_t)s->ropes[l->rope].n_rot / 2 - 1);
        if (i % (size_t)n_pairs && pairs[i] <= pairs[i - 1]) b->failed = true;
    }
    for (size_t i = 0; i < 2 * n; i++) {
        mean[i] = kv_take_f32(b);
        if (!isfinite(mean[i])) b->failed = true;
    }
    l->centre.pairs = pairs;
    l->centre.mean = mean;
    return KVANT_OK;
}

static kv_status read_centres(kv_snapshot *s, kv_byte_reader *b) {
    for (int32_t i = 0; i < s->n_layers && !b->failed; i++) KV_TRY(read_centre(s, &s->layers[i], b));
    return KVANT_OK;
}

/* By position (two may share one, where positions were divided), and far from where sums would overflow. */
static bool span_fits(const kv_spans *list, const kv_span *span) {
    const int64_t limit = INT64_MAX / 8;
    if (span->stored < -limit || span->stored > limit || span->turn < -limit || span->turn > limit)
        return false;
    int64_t least = list->list.count ? kv_spans_end(list) - 1 : 0;
    return kv_span_pos(span) >= least && list->n_cells + span->n_cells <= INT32_MAX;
}

static kv_status read_group(kv_snapshot_group *g, kv_byte_reader *b) {
    enum { SPAN_BYTES = 24 };
    int32_t n = take_count(b, 0, INT32_MAX);
    if ((size_t)n > kv_bytes_left(b) / SPAN_BYTES) b->failed = true;
    if (b->failed) return KVANT_OK;
    if (!kv_vec_reserve(&g->spans.list, (size_t)n)) return KVANT_NO_MEMORY;
    for (int32_t i = 0; i < n && !b->failed; i++) {
        kv_span span = {.stored = (int64_t)kv_take_u64(b), .turn = (int64_t)kv_take_u64(b)};
        span.n_cells = take_count(b, 1, INT32_MAX);
        span.first_cell = take_count(b, 0, 1) ? (int32_t)g->n_rows : -1;
        if (!span_fits(&g->spans, &span)) b->failed = true;
        if (b->failed) break;
        g->spans.list.at[g->spans.list.count++] = span;
        g->spans.n_cells += span.n_cells;
        if (!kv_span_released(&span)) g->n_rows += span.n_cells;
    }
    return KVANT_OK;
}

static kv_status read_spans(kv_snapshot *s, kv_byte_reader *b) {
    s->n_groups = take_count(b, 1, (uint32_t)s->n_layers);
    s->groups = kv_arena_alloc(&s->arena, (size_t)s->n_groups, sizeof *s->groups);
    if (!s->groups) return KVANT_NO_MEMORY;
    for (int32_t g = 0; g < s->n_groups && !b->failed; g++) {
        KV_TRY(read_group(&s->groups[g], b));
        if (s->groups[g].spans.n_cells != s->groups[0].spans.n_cells) b->failed = true;
    }
    if (s->groups[0].n_rows != s->groups[0].spans.n_cells) b->failed = true; /* it is what there is */
    return KVANT_OK;
}

static kv_status read_tokens(kv_snapshot *s, kv_byte_reader *b) {
    s->n_tokens = s->groups[0].spans.n_cells;
    s->tokens = kv_take_bytes(b, (size_t)s->n_tokens * 4);
    for (int64_t i = 0; s->tokens && i < s->n_tokens; i++)
        if (kv_snapshot_token(s, i) < -1 || kv_snapshot_token(s, i) >= s->n_vocab) b->failed = true;
    return KVANT_OK;
}

static kv_status read_note(kv_snapshot *s, kv_byte_reader *b) {
    s->n_note = kv_bytes_left(b);
    s->note = kv_take_bytes(b, s->n_note);
    return KVANT_OK;
}

static kv_status read_rows(reader *r, int32_t layer) {
    kv_snapshot_layer *l = &r->s->layers[layer];
    kv_byte_reader b;
    if (l->group >= r->s->n_groups) return malformed("a layer of a group that is not there");
    KV_TRY(read_section(r, KV_SECTION_ROWS, (uint32_t)layer, &b));
    size_t n = (size_t)r->s->groups[l->group].n_rows;
    /* heads, widths and cells are below 2^14, 2^15 and 2^31: no overflow */
    l->k_rows = kv_take_bytes(&b, n * kv_dtype_bytes(l->k_dtype, (int64_t)l->n_kv_heads * l->k_head.width));
    l->v_rows = kv_take_bytes(&b, n * kv_dtype_bytes(l->v_dtype, (int64_t)l->n_kv_heads * l->v_head.width));
    return check_end(&b, KV_SECTION_ROWS);
}

/* ---- the file ---- */

static kv_status read_all(reader *r, size_t size) {
    static kv_status (*const read[])(kv_snapshot * s, kv_byte_reader * b) = {
        read_model, read_ropes, read_layers, read_centres, read_spans, read_tokens, read_note};
    enum { N_READ = sizeof read / sizeof *read };
    KV_TRY(read_header(r, size));
    for (int i = 0; i < N_READ; i++) {
        kv_byte_reader b;
        KV_TRY(read_section(r, (kv_section)i, 0, &b));
        KV_TRY(read[i](r->s, &b));
        KV_TRY(check_end(&b, (kv_section)i));
    }
    if (r->n_sections != N_READ + (uint32_t)r->s->n_layers) return malformed("the number of sections");
    for (int32_t i = 0; i < r->s->n_layers; i++) KV_TRY(read_rows(r, i));
    return kv_bytes_left(&r->file) ? malformed("bytes behind the last section") : KVANT_OK;
}

static kv_status open_bytes(kv_snapshot *s, const uint8_t *data, size_t size) {
    reader r = {.s = s, .file = {.at = data, .end = data + size}};
    s->n_bytes = size;
    return read_all(&r, size);
}

kv_status kv_snapshot_open_memory(kv_snapshot **out, const uint8_t *data, size_t size) {
    kv_snapshot *s = kv_alloc(1, sizeof *s);
    if (!s) return KVANT_NO_MEMORY;
    kv_status status = open_bytes(s, data, size);
    if (status)
        kv_snapshot_close(s);
    else
        *out = s;
    return status;
}

kv_status kv_snapshot_open(kv_snapshot **out, const char *path) {
    kv_snapshot *s = kv_alloc(1, sizeof *s);
    if (!s) return KVANT_NO_MEMORY;
    kv_status status = kv_file_map_open(&s->map, path);
    if (!status) {
        static const uint8_t nothing[1];
        status = open_bytes(s, s->map.data ? s->map.data : nothing, s->map.size);
        if (status && status != KVANT_NO_MEMORY) kv_fail_in(status, "%s", path);
    }
    if (status)
        kv_snapshot_close(s);
    else
        *out = s;
    return status;
}

void kv_snapshot_close(kv_snapshot *s) {
    if (!s) return;
    for (int32_t g = 0; s->groups && g < s->n_groups; g++) kv_vec_clear(&s->groups[g].spans.list);
    kv_arena_clear(&s->arena);
    kv_file_map_close(&s->map);
    kv_free(s);
}

int32_t kv_snapshot_token(const kv_snapshot *s, int64_t i) {
    kv_byte_reader b = {.at = s->tokens + 4 * i, .end = s->tokens + 4 * i + 4};
    return (int32_t)kv_take_u32(&b);
}
