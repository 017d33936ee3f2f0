/* snapshot.h: one sequence of a cache as a file that says what its bytes mean: which model, how each layer
 * codes and rotates, which cells at which positions, and their rows as the layout `rows` has them.
 * docs/snapshot-format.md is the format, byte by byte. Reading validates all of it first; a snapshot that is
 * open can be restored into any sequence of a cache of the same model, whatever its types, layouts and
 * devices. */
#pragma once

#include "base/bytes.h"
#include "base/file.h"
#include "cache/cache.h"
#include "cache/spans.h"

enum { KV_SNAPSHOT_VERSION = 1 };

/* What a cache does not know of the model it serves. Borrows everything. */
typedef struct kv_snapshot_model {
    const char *name, *architecture, *fingerprint;
    int32_t n_layers, n_embd, n_vocab;
    const kv_rope *ropes; /* n_ropes */
    int32_t n_ropes;
    const int32_t *rope_of; /* of each layer: which of them */
} kv_snapshot_model;

typedef struct kv_snapshot_layer {
    const kv_dtype *k_dtype, *v_dtype;
    kv_head_code k_head, v_head;
    int32_t n_kv_heads, rope, group;
    kv_centre centre;               /* without a table; n_pairs 0: none */
    const uint8_t *k_rows, *v_rows; /* of the group's cells, in order of position */
} kv_snapshot_layer;

/* Layers that hold the same cells. */
typedef struct kv_snapshot_group {
    kv_spans spans; /* first_cell is the row of the first cell; -1: released, there are no rows */
    int64_t n_rows;
} kv_snapshot_group;

typedef struct kv_snapshot {
    kv_file_map map; /* empty where the bytes were given */
    kv_arena arena;
    kv_byte_text name, architecture, fingerprint;
    int32_t n_layers, n_embd, n_vocab, n_ropes, n_groups;
    kv_rope *ropes;
    kv_snapshot_layer *layers;
    kv_snapshot_group *groups;
    const uint8_t *tokens; /* kv_snapshot_token */
    int64_t n_tokens;      /* and positions */
    const uint8_t *note;   /* what the program kept with it */
    size_t n_note, n_bytes;
} kv_snapshot;

/* Writes under a temporary name first. `note` (n_note bytes) is kept as it is. */
typedef struct kv_snapshot_job {
    const char *path;
    const kv_snapshot_model *model;
    kv_cache *cache;
    int32_t seq;
    const void *note;
    size_t n_note;
} kv_snapshot_job;
kv_status kv_snapshot_write(const kv_snapshot_job *job);

/* Whether bytes begin as a snapshot does. */
bool kv_snapshot_begins(const uint8_t *data, size_t size);
/* Checks sizes, checksums and that every field makes sense; of the model nothing yet. */
kv_status kv_snapshot_open(kv_snapshot **out, const char *path);
/* The same on bytes that stay valid until close. */
kv_status kv_snapshot_open_memory(kv_snapshot **out, const uint8_t *data, size_t size);
void kv_snapshot_close(kv_snapshot *s);

/* The token at the i-th position there is; -1 where it is not known. */
int32_t kv_snapshot_token(const kv_snapshot *s, int64_t i);

/* Whether the cells would mean in this model and cache what they meant where they were written; the message
 * names what differs. */
kv_status kv_snapshot_check(const kv_snapshot *s, const kv_snapshot_model *model, kv_cache *cache);
/* Replaces a sequence, after kv_snapshot_check. Rows of the same dtype, transform and centre are copied byte
 * by byte, others decoded and coded again. Fails with nothing changed; only a device that fails half-way
 * leaves the sequence empty. */
kv_status kv_snapshot_restore(const kv_snapshot *s, const kv_snapshot_model *model, kv_cache *cache,
                              int32_t seq);
