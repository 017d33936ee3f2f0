/* logits_file.c: see the picture in the header. */
#include "logits_file.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static size_t row_bytes(int32_t n_vocab) {
    return 2 * sizeof(float) + kv_round_up((size_t)n_vocab * sizeof(uint16_t), 4);
}

static size_t n_tokens_of(const cli_logits_header *h) { return (size_t)h->n_chunks * (size_t)h->n_window; }

/* ---- writing ---- */

struct cli_logits_writer {
    kv_file_writer *file;
    int32_t n_vocab;
    uint8_t *row;
};

kvant_status cli_logits_create(cli_logits_writer **out, const char *path, const cli_logits_header *header,
                               const kvant_token *tokens) {
    cli_logits_writer *w = kv_alloc(1, sizeof *w);
    if (!w) return KVANT_NO_MEMORY;
    w->n_vocab = header->n_vocab;
    w->row = kv_alloc(row_bytes(header->n_vocab), 1);
    kvant_status status = w->row ? kv_file_writer_open(&w->file, path) : KVANT_NO_MEMORY;
    if (!status) status = kv_file_write(w->file, header, sizeof *header);
    if (!status) status = kv_file_write(w->file, tokens, n_tokens_of(header) * sizeof *tokens);
    if (status)
        cli_logits_writer_close(w);
    else
        *out = w;
    return status;
}

kvant_status cli_logits_write(cli_logits_writer *w, const float *logits) {
    float range[2] = {INFINITY, -INFINITY};
    for (int32_t i = 0; i < w->n_vocab; i++) {
        if (!isfinite(logits[i]))
            return kv_fail(KVANT_FAILED, "the logit of token %d is not a finite number", i);
        range[0] = fminf(range[0], logits[i]);
        range[1] = fmaxf(range[1], logits[i]);
    }
    range[1] = (range[1] - range[0]) / 65535;
    uint16_t *levels = (uint16_t *)(w->row + sizeof range);
    float inverse = range[1] > 0 ? 1 / range[1] : 0;
    for (int32_t i = 0; i < w->n_vocab; i++)
        levels[i] = (uint16_t)fminf(65535, rintf((logits[i] - range[0]) * inverse));
    memcpy(w->row, range, sizeof range);
    return kv_file_write(w->file, w->row, row_bytes(w->n_vocab));
}

kvant_status cli_logits_commit(cli_logits_writer *w) { return kv_file_writer_commit(w->file); }

void cli_logits_writer_close(cli_logits_writer *w) {
    if (!w) return;
    kv_file_writer_close(w->file);
    kv_free(w->row);
    kv_free(w);
}

/* ---- reading ---- */

struct cli_logits_reader {
    kv_file_map map;
    cli_logits_header header;
};

static kvant_status check_header(const cli_logits_header *h, size_t n_bytes, const char *path) {
    if (memcmp(h->magic, CLI_LOGITS_MAGIC, sizeof h->magic) != 0)
        return kv_fail(KVANT_FORMAT, "%s: not a file of saved logits", path);
    if (h->version != CLI_LOGITS_VERSION)
        return kv_fail(KVANT_UNSUPPORTED, "%s: version %u of saved logits, only %d is known", path,
                       h->version, CLI_LOGITS_VERSION);
    bool is_sane = h->n_vocab > 0 && h->n_window > 1 && h->n_chunks > 0 && h->n_scored > 0 &&
                   h->n_scored < h->n_window && (h->has_bos == 0 || h->has_bos == 1);
    size_t rows = 0, tokens = 0, total = 0;
    if (!is_sane || !kv_mul_size(&rows, (size_t)h->n_chunks * (size_t)h->n_scored, row_bytes(h->n_vocab)) ||
        !kv_mul_size(&tokens, n_tokens_of(h), sizeof(kvant_token)) || !kv_add_size(&total, rows, tokens) ||
        !kv_add_size(&total, total, sizeof *h))
        return kv_fail(KVANT_FORMAT, "%s: the header of the saved logits makes no sense", path);
    if (total != n_bytes)
        return kv_fail(KVANT_FORMAT, "%s: %zu bytes, but its header asks for %zu", path, n_bytes, total);
    return KVANT_OK;
}

kvant_status cli_logits_open(cli_logits_reader **out, const char *path) {
    cli_logits_reader *r = kv_alloc(1, sizeof *r);
    if (!r) return KVANT_NO_MEMORY;
    kvant_status status = kv_file_map_open(&r->map, path);
    if (!status && r->map.size < sizeof r->header)
        status = kv_fail(KVANT_FORMAT, "%s: %zu bytes, too short for saved logits", path, r->map.size);
    if (!status) {
        memcpy(&r->header, r->map.data, sizeof r->header);
        status = check_header(&r->header, r->map.size, path);
    }
    if (status)
        cli_logits_reader_close(r);
    else
        *out = r;
    return status;
}

const cli_logits_header *cli_logits_get_header(const cli_logits_reader *r) { return &r->header; }

const kvant_token *cli_logits_tokens(const cli_logits_reader *r) {
    return (const kvant_token *)(const void *)(r->map.data + sizeof r->header);
}

void cli_logits_read(const cli_logits_reader *r, int64_t i, float *logits) {
    const uint8_t *rows = r->map.data + sizeof r->header + n_tokens_of(&r->header) * sizeof(kvant_token);
    const uint8_t *row = rows + (size_t)i * row_bytes(r->header.n_vocab);
    float range[2];
    memcpy(range, row, sizeof range);
    const uint16_t *levels = (const uint16_t *)(const void *)(row + sizeof range);
    for (int32_t t = 0; t < r->header.n_vocab; t++) logits[t] = range[0] + range[1] * (float)levels[t];
}

void cli_logits_reader_close(cli_logits_reader *r) {
    if (!r) return;
    kv_file_map_close(&r->map);
    kv_free(r);
}
