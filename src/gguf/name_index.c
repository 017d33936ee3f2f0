/* name_index.c: linear probing, hashes by XXH3, doubled when half full. */
#include "gguf/name_index.h"

#include "base/memory.h"

#include <string.h>
#include <xxhash.h>

/* The slot that holds the name, or the free one where it belongs. */
static kv_name_slot *probe(const kv_name_index *index, const char *name) {
    size_t mask = index->capacity - 1, i = XXH3_64bits(name, strlen(name)) & mask;
    while (index->slots[i].name && strcmp(index->slots[i].name, name) != 0) i = (i + 1) & mask;
    return index->slots + i;
}

int64_t kv_name_index_find(const kv_name_index *index, const char *name) {
    if (index->count == 0) return -1;
    const kv_name_slot *slot = probe(index, name);
    return slot->name ? slot->at : -1;
}

static bool grow(kv_name_index *index) {
    kv_name_index grown = {.capacity = index->capacity ? index->capacity * 2 : 64, .count = index->count};
    grown.slots = kv_alloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots) return false;
    for (size_t i = 0; i < index->capacity; i++)
        if (index->slots[i].name) *probe(&grown, index->slots[i].name) = index->slots[i];
    kv_free(index->slots);
    *index = grown;
    return true;
}

bool kv_name_index_add(kv_name_index *index, const char *name, int64_t at) {
    if (index->count * 2 >= index->capacity && !grow(index)) return false;
    *probe(index, name) = (kv_name_slot){name, at};
    index->count++;
    return true;
}

void kv_name_index_clear(kv_name_index *index) {
    kv_free(index->slots);
    *index = (kv_name_index){0};
}
