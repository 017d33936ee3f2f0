/* fingerprint.c: see the header. The ends of the tensors stand for all of their bytes: models that differ, do
 * so in nearly every block, and reading all would take as long as loading. Each hash seeds the next. */
#include "engine/fingerprint.h"

#include <string.h>
#include <xxhash.h>

enum { END_BYTES = 1024 }; /* of a tensor's beginning, and of its end */

static uint64_t add_text(uint64_t hash, const char *text) {
    return XXH3_64bits_withSeed(text, strlen(text) + 1, hash);
}

/* A split says where a tensor lies, not what the model is. */
static bool is_of_split(const char *key) { return strncmp(key, "split.", 6) == 0; }

static uint64_t add_value(uint64_t hash, const kv_gguf_value *v) {
    if (is_of_split(v->key)) return hash;
    return XXH3_64bits_withSeed(v->data, v->bytes, add_text(hash, v->key));
}

static uint64_t add_tensor(uint64_t hash, const kv_gguf_tensor *t) {
    size_t n = t->bytes < END_BYTES ? t->bytes : END_BYTES;
    hash = add_text(add_text(hash, t->name), t->dtype->name);
    hash = XXH3_64bits_withSeed(t->dims, sizeof t->dims, hash);
    hash = XXH3_64bits_withSeed(t->data, n, hash);
    return XXH3_64bits_withSeed(t->data + t->bytes - n, n, hash);
}

uint64_t kv_gguf_fingerprint(const kv_gguf *g) {
    uint64_t hash = 0;
    for (int64_t i = 0; i < kv_gguf_n_values(g); i++) hash = add_value(hash, kv_gguf_value_at(g, i));
    for (int64_t i = 0; i < kv_gguf_n_tensors(g); i++) hash = add_tensor(hash, kv_gguf_tensor_at(g, i));
    return hash;
}
