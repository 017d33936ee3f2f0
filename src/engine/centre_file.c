/* centre_file.c: a centre set in a file of its own: docs/centre-format.md. A few hundred KiB at most, so it
 * is put together in memory. What is read is whole (its checksum), then this model's, then sane. */
#include "base/bytes.h"
#include "base/file.h"
#include "engine/centre_set.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

enum { VERSION = 1, CHECKSUM_BYTES = 8 };
static const char magic[8] = "kvcentre";

/* ---- writing ---- */

static void put_set(kv_byte_writer *w, const kv_centre_set *set, const char *fingerprint) {
    kv_put_bytes(w, magic, sizeof magic);
    kv_put_u32(w, VERSION);
    kv_put_text(w, fingerprint);
    kv_put_u32(w, (uint32_t)set->n_layers);
    kv_put_u32(w, (uint32_t)set->k_dim);
    kv_put_u32(w, (uint32_t)set->n_pairs);
    for (int32_t i = 0; i < set->n_layers; i++) {
        kv_put_u32(w, (uint32_t)set->n_heads[i]);
        for (int32_t j = 0; j < set->n_heads[i] * set->k_dim; j++) kv_put_f32(w, set->means[i][j]);
    }
    kv_put_u64(w, XXH3_64bits(w->bytes.at, w->bytes.count));
}

kv_status kv_centre_set_write(const kv_centre_set *set, const char *path, const char *fingerprint) {
    kv_byte_writer bytes = {0};
    kv_file_writer *file = NULL;
    put_set(&bytes, set, fingerprint);
    kv_status status = bytes.failed ? KVANT_NO_MEMORY : kv_file_writer_open(&file, path);
    if (!status) status = kv_file_write(file, bytes.bytes.at, bytes.bytes.count);
    if (!status) status = kv_file_writer_commit(file);
    kv_file_writer_close(file);
    kv_vec_clear(&bytes.bytes);
    return status;
}

/* ---- reading ---- */

static kv_status check_whole(const kv_file_map *map) {
    if (map->size < sizeof magic + CHECKSUM_BYTES || memcmp(map->data, magic, sizeof magic) != 0)
        return kv_fail(KVANT_FORMAT, "not a file of centred keys");
    size_t n = map->size - CHECKSUM_BYTES;
    kv_byte_reader end = {map->data + n, map->data + map->size, false};
    if (kv_take_u64(&end) != XXH3_64bits(map->data, n))
        return kv_fail(KVANT_FORMAT, "damaged or cut off: the checksum of its %zu bytes differs", map->size);
    return KVANT_OK;
}

/* Up to the first layer. */
static kv_status take_header(kv_centre_set *set, kv_byte_reader *r, const kv_hparams *h,
                             const char *fingerprint) {
    kv_take_bytes(r, sizeof magic);
    uint32_t version = kv_take_u32(r);
    if (version != VERSION)
        return kv_fail(KVANT_UNSUPPORTED, "version %u of centred keys, only %d is known", version, VERSION);
    if (!kv_byte_text_is(kv_take_text(r), fingerprint))
        return kv_fail(KVANT_INVALID, "made for another model than this one, which is %s", fingerprint);
    uint32_t n_layers = kv_take_u32(r), k_dim = kv_take_u32(r), n_pairs = kv_take_u32(r);
    if (n_layers != (uint32_t)h->n_layers || k_dim != (uint32_t)h->k_dim || n_pairs > k_dim / 2)
        return kv_fail(KVANT_FORMAT, "%u layers with keys of %u numbers, %u pairs: the model has %d and %d",
                       n_layers, k_dim, n_pairs, h->n_layers, h->k_dim);
    set->n_pairs = (int32_t)n_pairs;
    return KVANT_OK;
}

static kv_status take_layer(kv_centre_set *set, kv_byte_reader *r, int32_t layer) {
    uint32_t n_heads = kv_take_u32(r);
    if (n_heads != (uint32_t)set->n_heads[layer])
        return kv_fail(KVANT_FORMAT, "layer %d with %u KV heads, the model has %d", layer, n_heads,
                       set->n_heads[layer]);
    for (int32_t j = 0; j < set->n_heads[layer] * set->k_dim; j++) {
        float x = kv_take_f32(r);
        if (!isfinite(x)) return kv_fail(KVANT_FORMAT, "a mean of layer %d is no finite number", layer);
        set->means[layer][j] = x;
    }
    return KVANT_OK;
}

static kv_status take_set(kv_centre_set *set, const kv_file_map *map, const kv_hparams *h,
                          const char *fingerprint) {
    KV_TRY(check_whole(map));
    kv_byte_reader r = {map->data, map->data + map->size - CHECKSUM_BYTES, false};
    KV_TRY(take_header(set, &r, h, fingerprint));
    KV_TRY(kv_centre_set_init(set, h));
    set->source = KV_CENTRE_CALIBRATED;
    for (int32_t i = 0; i < set->n_layers; i++) KV_TRY(take_layer(set, &r, i));
    if (r.failed || kv_bytes_left(&r)) return kv_fail(KVANT_FORMAT, "more or fewer layers than it says");
    return KVANT_OK;
}

kv_status kv_centre_set_read(kv_centre_set *set, const char *path, const kv_hparams *h,
                             const char *fingerprint) {
    kv_file_map map;
    KV_TRY(kv_file_map_open(&map, path));
    kv_status status = take_set(set, &map, h, fingerprint);
    kv_file_map_close(&map);
    if (!status) return KVANT_OK;
    kv_centre_set_clear(set);
    return kv_fail_in(status, "%s", path);
}
