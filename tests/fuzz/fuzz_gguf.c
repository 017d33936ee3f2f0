/* fuzz_gguf.c: any bytes as a GGUF file: opened from memory and, where that succeeds, read in full through
 * every getter, decoded at both ends of every tensor. The block is the fuzzer's own, so that it sees every
 * step beyond. */
#include "base/memory.h"
#include "gguf/gguf.h"

#include <stdlib.h>

/* An assertion in every build. */
static void require(bool holds) {
    if (!holds) abort();
}

static void read_value(const kv_gguf *g, const char *key) {
    int32_t i, *ints;
    float x, *floats;
    bool b;
    kv_gguf_string s, *strings;
    size_t n;
    volatile char touched = 0;
    (void)kv_gguf_get_i32(g, key, KV_GGUF_REQUIRED, &i);
    (void)kv_gguf_get_f32(g, key, KV_GGUF_REQUIRED, &x);
    (void)kv_gguf_get_bool(g, key, KV_GGUF_REQUIRED, &b);
    if (!kv_gguf_get_string(g, key, KV_GGUF_REQUIRED, &s) && s.size) touched = s.at[s.size - 1];
    if (!kv_gguf_get_i32_array(g, key, KV_GGUF_REQUIRED, &ints, &n)) kv_free(ints);
    if (!kv_gguf_get_f32_array(g, key, KV_GGUF_REQUIRED, &floats, &n)) kv_free(floats);
    if (!kv_gguf_get_string_array(g, key, KV_GGUF_REQUIRED, &strings, &n)) {
        for (size_t k = 0; k < n; k++)
            if (strings[k].size) touched = strings[k].at[strings[k].size - 1];
        kv_free(strings);
    }
    (void)touched;
}

static void read_tensor(const kv_gguf *g, const kv_gguf_tensor *t) {
    float block[256];
    const kv_dtype *d = t->dtype;
    require(d->block_elems <= 256 && t->bytes >= (size_t)d->block_bytes);
    require(t->bytes % (size_t)d->block_bytes == 0);
    d->decode(block, t->data, d->block_elems);
    d->decode(block, t->data + t->bytes - d->block_bytes, d->block_elems);
    kv_gguf_release_tensor(g, t);
}

static void read_all(const kv_gguf *g) {
    for (int64_t i = 0; i < kv_gguf_n_values(g); i++) {
        const kv_gguf_value *v = kv_gguf_value_at(g, i);
        require(kv_gguf_find(g, v->key) == v);
        read_value(g, v->key);
    }
    for (int64_t i = 0; i < kv_gguf_n_tensors(g); i++) {
        const kv_gguf_tensor *t = kv_gguf_tensor_at(g, i);
        require(kv_gguf_find_tensor(g, t->name) == t);
        read_tensor(g, t);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kv_gguf *g = NULL;
    kv_alloc_fail_after((int64_t)(size % 16)); /* once with memory that runs out, */
    kv_status starved = kv_gguf_open_memory(&g, data, size);
    kv_alloc_fail_after(-1);
    kv_gguf_close(g);
    g = NULL;
    if (kv_gguf_open_memory(&g, data, size)) { /* once with enough */
        require(starved);
        return 0;
    }
    require(kv_gguf_file_bytes(g) == size);
    read_all(g);
    kv_gguf_close(g);
    return 0;
}
