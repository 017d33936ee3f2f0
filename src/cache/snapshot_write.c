/* snapshot_write.c: a sequence into a file, section by section; rows pass through a buffer of a page. */
#include "cache/cell_tokens.h"
#include "cache/snapshot.h"
#include "cache/snapshot_rows.h"
#include "cache/snapshot_section.h"

#include <string.h>

typedef struct writer {
    const kv_snapshot_job *job;
    kv_file_writer *file;
    XXH3_state_t hash;   /* of the section so far */
    kv_byte_writer data; /* of the next one */
} writer;

static kv_span_list spans_of(const writer *w, int32_t group) {
    return kv_cache_spans(w->job->cache, group, w->job->seq);
}

static int64_t rows_of(kv_span_list s) {
    int64_t n = 0;
    for (size_t i = 0; i < s.count; i++)
        if (!kv_span_released(&s.at[i])) n += s.at[i].n_cells;
    return n;
}

/* ---- sections ---- */

static kv_status write_hashed(writer *w, const void *data, size_t n) {
    XXH3_64bits_update(&w->hash, data, n);
    return kv_file_write(w->file, data, n);
}

static kv_status write_u64(writer *w, uint64_t value) {
    kv_byte_writer number = {0};
    kv_put_u64(&number, value);
    kv_status status =
        number.failed ? KVANT_NO_MEMORY : kv_file_write(w->file, number.bytes.at, number.bytes.count);
    kv_vec_clear(&number.bytes);
    return status;
}

static kv_status begin_section(writer *w, kv_section kind, int32_t index, uint64_t n) {
    kv_byte_writer head = {0};
    kv_put_bytes(&head, kv_section_name(kind), 4);
    kv_put_u32(&head, (uint32_t)index);
    kv_put_u64(&head, n);
    XXH3_64bits_reset(&w->hash);
    kv_status status = head.failed ? KVANT_NO_MEMORY : write_hashed(w, head.bytes.at, head.bytes.count);
    kv_vec_clear(&head.bytes);
    return status;
}

static kv_status end_section(writer *w, uint64_t n) {
    static const uint8_t zeros[8];
    KV_TRY(write_hashed(w, zeros, kv_section_padding(n)));
    return write_u64(w, XXH3_64bits_digest(&w->hash));
}

/* What was put into `data`. */
static kv_status write_section(writer *w, kv_section kind) {
    size_t n = w->data.bytes.count;
    if (w->data.failed) return KVANT_NO_MEMORY;
    KV_TRY(begin_section(w, kind, 0, n));
    KV_TRY(write_hashed(w, w->data.bytes.at, n));
    w->data.bytes.count = 0;
    return end_section(w, n);
}

/* ---- what they hold ---- */

static void put_model(writer *w) {
    const kv_snapshot_model *m = w->job->model;
    kv_put_text(&w->data, m->name);
    kv_put_text(&w->data, m->architecture);
    kv_put_text(&w->data, m->fingerprint);
    kv_put_u32(&w->data, (uint32_t)m->n_layers);
    kv_put_u32(&w->data, (uint32_t)m->n_embd);
    kv_put_u32(&w->data, (uint32_t)m->n_vocab);
}

static void put_ropes(writer *w) {
    const kv_snapshot_model *m = w->job->model;
    kv_put_u32(&w->data, (uint32_t)m->n_ropes);
    for (int32_t i = 0; i < m->n_ropes; i++) {
        const kv_rope *r = &m->ropes[i];
        kv_put_u32(&w->data, (uint32_t)r->n_rot);
        kv_put_u32(&w->data, r->pairing == KV_ROPE_HALVES);
        kv_put_f32(&w->data, r->magnitude);
        for (int32_t k = 0; k < r->n_rot / 2; k++) kv_put_f64(&w->data, r->freq[k]);
    }
}

static void put_heads(writer *w, const kv_dtype *d, const kv_head_code *code) {
    kv_put_text(&w->data, d->name);
    kv_put_u32(&w->data, (uint32_t)code->dim);
    kv_put_u32(&w->data, (uint32_t)code->width);
    kv_put_u32(&w->data, (uint32_t)code->rotation);
}

static void put_layers(writer *w) {
    const kv_snapshot_model *m = w->job->model;
    for (int32_t i = 0; i < m->n_layers; i++) {
        const kv_store *s = kv_cache_store(w->job->cache, i);
        put_heads(w, s->k.dtype, &s->k_head);
        put_heads(w, s->v.dtype, &s->v_head);
        kv_put_u32(&w->data, (uint32_t)s->n_kv_heads);
        kv_put_u32(&w->data, (uint32_t)m->rope_of[i]);
        kv_put_u32(&w->data, (uint32_t)kv_cache_group(w->job->cache, i));
        kv_put_u32(&w->data, s->centre ? (uint32_t)s->centre->n_pairs : 0);
    }
}

static void put_centres(writer *w) {
    for (int32_t i = 0; i < w->job->model->n_layers; i++) {
        const kv_store *s = kv_cache_store(w->job->cache, i);
        int32_t n = s->centre ? s->n_kv_heads * s->centre->n_pairs : 0;
        for (int32_t k = 0; k < n; k++) kv_put_u32(&w->data, (uint32_t)s->centre->pairs[k]);
        for (int32_t k = 0; k < 2 * n; k++) kv_put_f32(&w->data, s->centre->mean[k]);
    }
}

/* Neighbours that run on in position are one span, wherever their cells lie. */
static size_t span_end(kv_span_list s, size_t first, kv_span *span) {
    size_t end = first;
    *span = s.at[first];
    for (span->n_cells = 0; end < s.count; end++) {
        const kv_span *next = &s.at[end];
        if (next->turn != span->turn || next->stored != span->stored + span->n_cells ||
            kv_span_released(next) != kv_span_released(span))
            break;
        span->n_cells += next->n_cells;
    }
    return end;
}

static void put_group(writer *w, kv_span_list s) {
    uint32_t n = 0;
    kv_span span;
    for (size_t i = 0; i < s.count; i = span_end(s, i, &span)) n++;
    kv_put_u32(&w->data, n);
    for (size_t i = 0; i < s.count;) {
        i = span_end(s, i, &span);
        kv_put_u64(&w->data, (uint64_t)span.stored);
        kv_put_u64(&w->data, (uint64_t)span.turn);
        kv_put_u32(&w->data, (uint32_t)span.n_cells);
        kv_put_u32(&w->data, !kv_span_released(&span));
    }
}

static void put_spans(writer *w) {
    int32_t n = kv_cache_n_groups(w->job->cache);
    kv_put_u32(&w->data, (uint32_t)n);
    for (int32_t i = 0; i < n; i++) put_group(w, spans_of(w, i));
}

static void put_tokens(writer *w) {
    int64_t n = kv_cache_tokens(w->job->cache, w->job->seq);
    int32_t *tokens = kv_alloc((size_t)n, sizeof *tokens);
    if (tokens) kv_cache_read_tokens(w->job->cache, w->job->seq, tokens);
    if (!tokens) w->data.failed = true;
    for (int64_t i = 0; tokens && i < n; i++) kv_put_u32(&w->data, (uint32_t)tokens[i]);
    kv_free(tokens);
}

static void put_note(writer *w) { kv_put_bytes(&w->data, w->job->note, w->job->n_note); }

/* ---- rows ---- */

/* A buffer of rows, and what kv_rows_read needs. */
typedef struct row_buffer {
    uint8_t *plain, *staging;
} row_buffer;

static kv_status write_span(writer *w, const kv_tensor *t, const kv_span *span, const row_buffer *buffer) {
    for (int32_t k = 0, n; k < span->n_cells; k += n) {
        n = span->n_cells - k < KV_SNAPSHOT_ROWS ? span->n_cells - k : KV_SNAPSHOT_ROWS;
        KV_TRY(kv_rows_read(buffer->plain, t, span->first_cell + k, n, buffer->staging));
        KV_TRY(write_hashed(w, buffer->plain, (size_t)n * kv_dtype_bytes(t->dtype, t->cols)));
    }
    return KVANT_OK;
}

static kv_status write_rows(writer *w, const kv_tensor *t, kv_span_list s) {
    row_buffer buffer = {.plain = kv_alloc(KV_SNAPSHOT_ROWS, kv_dtype_bytes(t->dtype, t->cols)),
                         .staging = kv_alloc(1, kv_rows_staging(t))};
    kv_status status = buffer.plain && buffer.staging ? KVANT_OK : KVANT_NO_MEMORY;
    for (size_t i = 0; i < s.count && !status; i++)
        if (!kv_span_released(&s.at[i])) status = write_span(w, t, &s.at[i], &buffer);
    kv_free(buffer.plain);
    kv_free(buffer.staging);
    return status;
}

static uint64_t layer_bytes(const writer *w, int32_t layer) {
    const kv_store *s = kv_cache_store(w->job->cache, layer);
    size_t row = kv_dtype_bytes(s->k.dtype, s->k.cols) + kv_dtype_bytes(s->v.dtype, s->v.cols);
    return (uint64_t)rows_of(spans_of(w, kv_cache_group(w->job->cache, layer))) * row;
}

static kv_status write_layer(writer *w, int32_t layer) {
    const kv_store *s = kv_cache_store(w->job->cache, layer);
    kv_span_list spans = spans_of(w, kv_cache_group(w->job->cache, layer));
    KV_TRY(begin_section(w, KV_SECTION_ROWS, layer, layer_bytes(w, layer)));
    KV_TRY(write_rows(w, &s->k, spans));
    KV_TRY(write_rows(w, &s->v, spans));
    return end_section(w, layer_bytes(w, layer));
}

/* ---- the file ---- */

static void (*const put[])(writer *w) = {put_model, put_ropes,  put_layers, put_centres,
                                         put_spans, put_tokens, put_note};
enum { N_PUT = sizeof put / sizeof *put };

/* The header states the length of all that follows, so every section is put once to be measured. */
static kv_status measure(writer *w, uint64_t *n_bytes) {
    *n_bytes = KV_SNAPSHOT_HEADER;
    for (int i = 0; i < N_PUT; i++) {
        put[i](w);
        if (w->data.failed) return KVANT_NO_MEMORY;
        *n_bytes += kv_section_bytes(w->data.bytes.count);
        w->data.bytes.count = 0;
    }
    for (int32_t i = 0; i < w->job->model->n_layers; i++) *n_bytes += kv_section_bytes(layer_bytes(w, i));
    return KVANT_OK;
}

static kv_status write_header(writer *w) {
    uint64_t n_bytes;
    KV_TRY(measure(w, &n_bytes));
    kv_byte_writer header = {0};
    kv_put_bytes(&header, KV_SNAPSHOT_MAGIC, sizeof KV_SNAPSHOT_MAGIC);
    kv_put_u32(&header, KV_SNAPSHOT_VERSION);
    kv_put_u32(&header, (uint32_t)(N_PUT + w->job->model->n_layers));
    kv_put_u64(&header, n_bytes);
    if (!header.failed) kv_put_u64(&header, XXH3_64bits(header.bytes.at, header.bytes.count));
    kv_status status =
        header.failed ? KVANT_NO_MEMORY : kv_file_write(w->file, header.bytes.at, header.bytes.count);
    kv_vec_clear(&header.bytes);
    return status;
}

static kv_status write_all(writer *w) {
    KV_TRY(write_header(w));
    for (int i = 0; i < N_PUT; i++) {
        put[i](w);
        KV_TRY(write_section(w, (kv_section)i));
    }
    for (int32_t i = 0; i < w->job->model->n_layers; i++) KV_TRY(write_layer(w, i));
    return kv_file_writer_commit(w->file);
}

kv_status kv_snapshot_write(const kv_snapshot_job *job) {
    writer w = {.job = job};
    kv_status status = kv_file_writer_open(&w.file, job->path);
    if (!status) status = write_all(&w);
    kv_file_writer_close(w.file);
    kv_vec_clear(&w.data.bytes);
    return status;
}
