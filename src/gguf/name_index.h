/* name_index.h: finds a name among many in constant time: a hash table with open addressing over borrowed
 * strings. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kv_name_slot {
    const char *name; /* NULL: free */
    int64_t at;
} kv_name_slot;

typedef struct kv_name_index { /* starts zeroed */
    kv_name_slot *slots;
    size_t capacity, count; /* a power of two; at most half of it is used */
} kv_name_index;

/* -1 if it is not there. */
int64_t kv_name_index_find(const kv_name_index *index, const char *name);
/* Borrows the name, which must not be there yet. False when out of memory, nothing changed then. */
bool kv_name_index_add(kv_name_index *index, const char *name, int64_t at);
void kv_name_index_clear(kv_name_index *index);
