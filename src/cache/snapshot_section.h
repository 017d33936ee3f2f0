/* snapshot_section.h: the frame that holds a snapshot together, for its writer and its reader.
 *
 *     header   "kvantseq"  u32 version  u32 sections  u64 bytes of the file  u64 XXH3 of these 24 bytes
 *     section  4 letters   u32 index    u64 bytes n   n bytes   zeros up to a multiple of 8   u64 XXH3 of all
 * that
 *     ...
 */
#pragma once

#define XXH_STATIC_LINKING_ONLY /* its state by value: no allocation of its own */
#include <xxhash.h>

#include "base/bytes.h"
#include "base/file.h"

enum { KV_SNAPSHOT_HEADER = 32, KV_SECTION_HEAD = 16, KV_SECTION_TAIL = 8 };

static const char KV_SNAPSHOT_MAGIC[8] = {'k', 'v', 'a', 'n', 't', 's', 'e', 'q'};

/* In this order; the last one once for each layer. */
typedef enum kv_section {
    KV_SECTION_MODEL,
    KV_SECTION_ROPES,
    KV_SECTION_LAYERS,
    KV_SECTION_CENTRES,
    KV_SECTION_SPANS,
    KV_SECTION_TOKENS,
    KV_SECTION_NOTE,
    KV_SECTION_ROWS
} kv_section;

/* Four letters. */
static inline const char *kv_section_name(kv_section s) {
    static const char *const names[] = {"modl", "rope", "layr", "cntr", "span", "tokn", "note", "rows"};
    return names[s];
}

static inline size_t kv_section_padding(uint64_t n) { return (size_t)(-n & 7); }
/* Of a section with n bytes, frame included. */
static inline uint64_t kv_section_bytes(uint64_t n) {
    return KV_SECTION_HEAD + n + kv_section_padding(n) + KV_SECTION_TAIL;
}
