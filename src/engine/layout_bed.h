/* layout_bed.h: where a layout is put to the test (layout_laws.c) and timed (layout_speed.c): stores of the
 * same cells in it and in plain rows, on a CPU device, and ops run on them. */
#pragma once

#include "base/random.h"
#include "op/attend.h"
#include "op/cache_write.h"

enum {
    KV_BED_HEADS = 2,  /* KV heads */
    KV_BED_GROUP = 4,  /* query heads of each */
    KV_BED_TOKENS = 5, /* the last of the sequence */
    KV_BED_RUNS = 3
};

/* One sequence of three runs with unused cells before, between and behind them; the second is in another
 * frame. */
typedef struct kv_bed {
    kv_device *device;
    kv_arena arena;
    kv_random random;
    double freq[256];
    kv_rope rope;
    int32_t n_cells; /* of a store */
    kv_run runs[KV_BED_RUNS];
    kv_seq_view seq;
    int64_t pos[KV_BED_TOKENS];
    int32_t cells[KV_BED_TOKENS];
    kv_batch_view batch;
    kv_tensor *table; /* of the tokens' angles, and of one turn */
} kv_bed;

/* n_used cells in runs. */
kv_status kv_bed_open(kv_bed *b, int32_t dim, int32_t n_used, unsigned cpu, uint64_t seed);
void kv_bed_close(kv_bed *b);

/* A store whose bytes are all 0xff: NaN in every type. */
kv_status kv_bed_store(kv_store *out, kv_bed *b, const kv_dtype *d, const kv_layout *l, int32_t dim,
                       bool rotated);
void kv_bed_release(const kv_store *s);
/* The same random numbers into the cells of the runs of two stores; others get bytes of `unused`. */
kv_status kv_bed_fill(kv_bed *b, const kv_store *s, const kv_store *rows, uint8_t unused);
/* Random floats, in memory of the bed. */
kv_tensor *kv_bed_floats(kv_bed *b, int64_t rows, int64_t cols);
bool kv_bed_uses(const kv_bed *b, int32_t cell);

kv_attend_params kv_bed_attention(const kv_bed *b, const kv_store *s);
kv_cache_write_params kv_bed_writing(const kv_bed *b, kv_store *s);
