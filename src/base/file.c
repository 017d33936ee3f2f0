/* file.c: POSIX files. Every failure names the path and what the system said. */
#define _GNU_SOURCE
#include "base/file.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static kv_status io_failure(const char *what, const char *path) {
    int error = errno;
    kv_status status = error == ENOENT ? KVANT_NOT_FOUND : error == ENOMEM ? KVANT_NO_MEMORY : KVANT_IO;
    return kv_fail(status, "%s: %s: %s", path, what, strerror(error));
}

kv_status kv_file_map_open(kv_file_map *out, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return io_failure("cannot open", path);
    kv_status status = KVANT_OK;
    struct stat info;
    kv_file_map map = {0};
    if (fstat(fd, &info)) {
        status = io_failure("cannot stat", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = kv_fail(KVANT_INVALID, "%s: not a regular file", path);
    } else if (info.st_size > 0) {
        map.size = (size_t)info.st_size;
        void *p = mmap(NULL, map.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            status = io_failure("cannot map", path);
        else
            map.data = p;
    }
    close(fd);
    if (!status) *out = map;
    return status;
}

void kv_file_map_close(kv_file_map *map) {
    if (map->data) munmap((void *)map->data, map->size);
    *map = (kv_file_map){0};
}

struct kv_file_writer {
    FILE *file;
    char *path, *part;
    int64_t offset;
    bool created; /* and not yet renamed: close removes it */
};

kv_status kv_file_writer_open(kv_file_writer **out, const char *path) {
    struct stat info;
    if (!stat(path, &info) && !S_ISREG(info.st_mode)) /* the new name would replace a device or a pipe */
        return kv_fail(KVANT_INVALID, "%s: cannot write: not a regular file", path);
    kv_file_writer *w = kv_alloc(1, sizeof *w);
    if (!w) return KVANT_NO_MEMORY;
    kv_status status = KVANT_OK;
    size_t n = strlen(path);
    w->path = kv_strdup(path);
    w->part = kv_alloc(n + 6, 1);
    if (!w->path || !w->part) {
        status = KVANT_NO_MEMORY;
    } else {
        memcpy(w->part, path, n);
        memcpy(w->part + n, ".part", 6);
        w->file = fopen(w->part, "wbe");
        if (!w->file)
            status = io_failure("cannot write", w->part);
        else
            w->created = true;
    }
    if (status)
        kv_file_writer_close(w);
    else
        *out = w;
    return status;
}

kv_status kv_file_write(kv_file_writer *w, const void *data, size_t n) {
    if (n && fwrite(data, 1, n, w->file) != n) return io_failure("write failed", w->part);
    w->offset += (int64_t)n;
    return KVANT_OK;
}

int64_t kv_file_offset(const kv_file_writer *w) { return w->offset; }

kv_status kv_file_writer_commit(kv_file_writer *w) {
    if (fflush(w->file) || fsync(fileno(w->file))) return io_failure("write failed", w->part);
    int failed = fclose(w->file);
    w->file = NULL;
    if (failed) return io_failure("write failed", w->part);
    if (rename(w->part, w->path)) return io_failure("cannot rename to its name", w->part);
    w->created = false;
    return KVANT_OK;
}

void kv_file_writer_close(kv_file_writer *w) {
    if (!w) return;
    if (w->file) fclose(w->file);
    if (w->created) unlink(w->part);
    kv_free(w->path);
    kv_free(w->part);
    kv_free(w);
}
