/* file.h: reading by memory map, writing so that a half-written file is never seen under its name. */
#pragma once

#include "base/status.h"

typedef struct kv_file_map {
    const uint8_t *data;
    size_t size;
} kv_file_map;

/* Maps a regular file read-only; an empty file gives size 0 and data NULL. */
kv_status kv_file_map_open(kv_file_map *out, const char *path);
void kv_file_map_close(kv_file_map *map);

/* Writes to "path.part"; commit syncs it and gives it its name, close without commit removes it. Replaces
 * regular files only: a folder or a device of that name is KVANT_INVALID. */
typedef struct kv_file_writer kv_file_writer;
kv_status kv_file_writer_open(kv_file_writer **out, const char *path);
kv_status kv_file_write(kv_file_writer *w, const void *data, size_t n);
int64_t kv_file_offset(const kv_file_writer *w);
kv_status kv_file_writer_commit(kv_file_writer *w);
/* Also after commit; NULL is legal. */
void kv_file_writer_close(kv_file_writer *w);
