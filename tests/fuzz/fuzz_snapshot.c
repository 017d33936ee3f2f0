/* fuzz_snapshot.c: any bytes as a saved sequence, restored into a small cache of two groups. Checksums would
 * keep the fuzzer out, so they are made right first; then what is refused must leave the cache as it was, and
 * what is accepted must be a sequence that can be appended to, cut and saved. */
#include "cache/cell_tokens.h"
#include "cache/snapshot.h"
#include "cache/snapshot_section.h"

#include <stdlib.h>
#include <string.h>

enum { N_CELLS = 256, N_BATCH = 4, WINDOW = 8, N_HELD = 7 };

/* An assertion in every build. */
static void require(bool holds) {
    if (!holds) abort();
}

static kv_status device_alloc(kv_device *d, kv_buffer *out, size_t bytes) {
    *out = (kv_buffer){.device = d, .bytes = bytes, .host = kv_alloc(1, bytes)};
    return out->host ? KVANT_OK : KVANT_NO_MEMORY;
}

static void device_release(kv_buffer *b) { kv_free(b->host); }

static kv_device device = {.name = "test", .alloc = device_alloc, .release = device_release};
static const double freq[2] = {1, 0.1};
static const kv_rope ropes[1] = {{4, KV_ROPE_HALVES, 1, freq}};
static const int32_t rope_of[2] = {0, 0};
static const kv_snapshot_model model = {"m", "a", "f", 2, 8, 100, ropes, 1, rope_of};

/* A layer that sees everything and one with a window, whose keys are q8_0 and transformed. */
static kv_cache *open_cache(void) {
    kv_cache_layer layers[2];
    layers[0] = (kv_cache_layer){
        &device, &kv_dtype_f16, &kv_dtype_f16, &kv_layout_rows, &kv_layout_rows, 1, 4, 4, false, false, NULL,
        0,       true};
    layers[1] = layers[0];
    layers[1].k_dtype = &kv_dtype_q8_0;
    layers[1].k_rotated = true;
    layers[1].window = WINDOW;
    kv_cache_spec spec = {.layers = layers,
                          .n_layers = 2,
                          .n_cells = N_CELLS,
                          .n_sequences = 2,
                          .n_batch = N_BATCH,
                          .can_turn = true,
                          .margin = 4};
    kv_cache *c = NULL;
    require(!kv_cache_create(&c, &spec));
    return c;
}

static void append(kv_cache *c, int32_t seq, int32_t n) {
    static const int32_t tokens[N_BATCH] = {1, 2, 3, 4};
    for (int32_t i = 0; i < n; i++) {
        require(!kv_cache_append(c, &(kv_cache_part){seq, 1}, 1));
        kv_cache_note_tokens(c, tokens);
        kv_cache_commit(c);
    }
}

/* Puts the checksums, lengths and counts of the frame right, as far as there is one. */
static void repair(uint8_t *bytes, size_t size) {
    kv_byte_reader file = {.at = bytes, .end = bytes + size};
    uint64_t hash, n_bytes = size;
    if (!kv_take_bytes(&file, KV_SNAPSHOT_HEADER)) return;
    memcpy(bytes, KV_SNAPSHOT_MAGIC, sizeof KV_SNAPSHOT_MAGIC);
    memcpy(bytes + 16, &n_bytes, 8); /* the corpus is for little endian machines */
    hash = XXH3_64bits(bytes, 24);
    memcpy(bytes + 24, &hash, 8);
    while (kv_bytes_left(&file) >= KV_SECTION_HEAD) {
        uint8_t *section = bytes + (file.at - bytes);
        (void)kv_take_bytes(&file, 8);
        uint64_t n = kv_take_u64(&file);
        if (n > kv_bytes_left(&file) || !kv_take_bytes(&file, n)) return;
        if (!kv_take_bytes(&file, kv_section_padding(n))) return;
        hash = XXH3_64bits(section, (size_t)(file.at - section));
        if (!kv_take_bytes(&file, 8)) return;
        memcpy(bytes + (file.at - bytes) - 8, &hash, 8);
    }
}

static int64_t count_free(const kv_cache *c) { return kv_cache_group_free(c, 0) + kv_cache_group_free(c, 1); }

static void use(const uint8_t *bytes, size_t size, kv_cache *c) {
    kv_snapshot *s = NULL;
    int64_t n_free = count_free(c);
    kv_status status = kv_snapshot_open_memory(&s, bytes, size);
    if (!status) status = kv_snapshot_check(s, &model, c);
    if (!status) status = kv_snapshot_restore(s, &model, c, 1);
    if (status) {
        require(kv_cache_tokens(c, 1) == N_HELD && kv_cache_end(c, 1) == N_HELD && count_free(c) == n_free);
    } else {
        require(kv_cache_tokens(c, 1) == s->n_tokens);
        if (kv_cache_group_free(c, 0) >= 3 && kv_cache_end(c, 1) < INT32_MAX) append(c, 1, 3);
        require(!kv_cache_remove(c, 1, 0, -1));
        require(kv_cache_tokens(c, 0) == 3);
        append(c, 1, N_HELD);
    }
    kv_snapshot_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kv_cache *c = open_cache();
    append(c, 0, 3);
    append(c, 1, N_HELD);
    use(data, size, c);
    uint8_t *bytes = malloc(size + 1);
    require(bytes);
    if (size) memcpy(bytes, data, size);
    repair(bytes, size);
    use(bytes, size, c);
    kv_alloc_fail_after((int64_t)(size % 16)); /* once with memory that runs out */
    kv_snapshot *s = NULL;
    if (!kv_snapshot_open_memory(&s, bytes, size) && !kv_snapshot_check(s, &model, c))
        (void)kv_snapshot_restore(s, &model, c, 1);
    kv_alloc_fail_after(-1);
    kv_snapshot_close(s);
    free(bytes);
    kv_cache_destroy(c);
    return 0;
}
