/* logits_file.h: the predictions of a perplexity run, saved so that another run can be compared with them.
 *
 * Little endian, as the machines are that this runs on:
 *
 *     cli_logits_header
 *     int32 tokens[n_chunks * n_window]                    the text, for the check that both runs read the
 * same n_chunks * n_scored rows:  float least, step; uint16 level[n_vocab]        padded to a multiple of 4
 * bytes
 *
 * A logit is least + step * level: 16 bits between the least and the largest of the row. After the softmax
 * that is a distribution within a KL of about 1e-8 of the one that was saved. */
#pragma once

#include "kvant.h"

typedef struct cli_logits_header {
    char magic[8]; /* CLI_LOGITS_MAGIC */
    uint32_t version;
    int32_t n_vocab, n_window, n_chunks;
    int32_t n_scored; /* predictions in a window: of its last n_scored tokens */
    int32_t has_bos;
} cli_logits_header;
#define CLI_LOGITS_MAGIC "KVLOGITS"
enum { CLI_LOGITS_VERSION = 1 };

/* Writing: the rows in the order of the text. Nothing stands under `path` before commit. */
typedef struct cli_logits_writer cli_logits_writer;
kvant_status cli_logits_create(cli_logits_writer **out, const char *path, const cli_logits_header *header,
                               const kvant_token *tokens);
kvant_status cli_logits_write(cli_logits_writer *w, const float *logits);
kvant_status cli_logits_commit(cli_logits_writer *w);
void cli_logits_writer_close(cli_logits_writer *w);

/* Reading: mapped, sizes checked. */
typedef struct cli_logits_reader cli_logits_reader;
kvant_status cli_logits_open(cli_logits_reader **out, const char *path);
const cli_logits_header *cli_logits_get_header(const cli_logits_reader *r);
const kvant_token *cli_logits_tokens(const cli_logits_reader *r);
/* Row i into n_vocab floats. */
void cli_logits_read(const cli_logits_reader *r, int64_t i, float *logits);
void cli_logits_reader_close(cli_logits_reader *r);
