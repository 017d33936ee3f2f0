/* memory.c: the library's allocator. A thin layer over the C library that counts, can be told to fail, and
 * says how much was asked for. */
#define _GNU_SOURCE
#include "base/memory.h"

#include "base/status.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_int_least64_t alloc_count;
static atomic_int_least64_t fail_countdown = -1;

int64_t kv_alloc_count(void) { return atomic_load_explicit(&alloc_count, memory_order_relaxed); }

void kv_alloc_fail_after(int64_t n) { atomic_store(&fail_countdown, n); }

static bool must_fail(void) {
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) < 0) return false;
    int64_t left = atomic_fetch_sub(&fail_countdown, 1);
    if (left > 0) return false;
    atomic_store(&fail_countdown, 0);
    return true;
}

static void *out_of_memory(size_t n, size_t size) {
    size_t bytes;
    if (kv_mul_size(&bytes, n, size))
        kv_fail(KVANT_NO_MEMORY, "out of memory: %zu bytes asked for", bytes);
    else
        kv_fail(KVANT_NO_MEMORY, "out of memory: %zu x %zu bytes asked for, more than can be addressed", n,
                size);
    return NULL;
}

static bool begin(size_t *bytes, size_t n, size_t size) {
    if (!kv_mul_size(bytes, n, size) || must_fail()) return false;
    if (*bytes == 0) *bytes = 1;
    atomic_fetch_add_explicit(&alloc_count, 1, memory_order_relaxed);
    return true;
}

void *kv_alloc(size_t n, size_t size) {
    size_t bytes;
    void *p = begin(&bytes, n, size) ? calloc(1, bytes) : NULL;
    return p ? p : out_of_memory(n, size);
}

void *kv_alloc_aligned(size_t n, size_t size) {
    size_t bytes;
    void *p = NULL;
    if (!begin(&bytes, n, size) || bytes > SIZE_MAX - 64 || posix_memalign(&p, 64, kv_round_up(bytes, 64)))
        return out_of_memory(n, size);
    return memset(p, 0, kv_round_up(bytes, 64));
}

void *kv_realloc(void *p, size_t n, size_t size) {
    size_t bytes;
    void *q = begin(&bytes, n, size) ? realloc(p, bytes) : NULL;
    return q ? q : out_of_memory(n, size);
}

void kv_free(void *p) { free(p); }

char *kv_strndup(const char *s, size_t n) {
    char *copy = n < SIZE_MAX ? kv_alloc(n + 1, 1) : NULL;
    if (copy) memcpy(copy, s, n);
    return copy;
}

char *kv_strdup(const char *s) { return kv_strndup(s, strlen(s)); }

void *kv_pages_map(size_t bytes) {
    size_t checked;
    if (!begin(&checked, bytes, 1)) return out_of_memory(bytes, 1);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return out_of_memory(bytes, 1);
    madvise(p, bytes, MADV_HUGEPAGE); /* a hint: small pages work as well */
    return p;
}

void kv_pages_unmap(void *p, size_t bytes) {
    if (p) munmap(p, bytes);
}

size_t kv_memory_of_machine(void) {
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && bytes > 0 ? (size_t)pages * (size_t)bytes : 0;
}

void kv_pages_release(void *p, size_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = ((uintptr_t)p + page - 1) / page * page;
    uintptr_t last = ((uintptr_t)p + bytes) / page * page;
    if (last > first) madvise((void *)first, last - first, MADV_DONTNEED);
}

/* ---- arena ---- */

enum { ARENA_BLOCK_BYTES = 64 * 1024 };

struct kv_arena_block {
    struct kv_arena_block *next;
    size_t used, capacity;
    _Alignas(16) char bytes[];
};

void *kv_arena_alloc(kv_arena *arena, size_t n, size_t size) {
    size_t bytes;
    if (!kv_mul_size(&bytes, n, size) || bytes > SIZE_MAX / 2) return out_of_memory(n, size);
    bytes = kv_round_up(bytes ? bytes : 1, 16);
    struct kv_arena_block *block = arena->blocks;
    if (!block || block->capacity - block->used < bytes) {
        size_t capacity = bytes > ARENA_BLOCK_BYTES ? bytes : ARENA_BLOCK_BYTES;
        block = kv_alloc(1, sizeof *block + capacity);
        if (!block) return NULL;
        block->capacity = capacity;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *p = block->bytes + block->used;
    block->used += bytes;
    return p;
}

char *kv_arena_strndup(kv_arena *arena, const char *s, size_t n) {
    char *copy = n < SIZE_MAX ? kv_arena_alloc(arena, n + 1, 1) : NULL;
    if (copy) memcpy(copy, s, n);
    return copy;
}

void kv_arena_clear(kv_arena *arena) {
    while (arena->blocks) {
        struct kv_arena_block *next = arena->blocks->next;
        kv_free(arena->blocks);
        arena->blocks = next;
    }
}

bool kv_vec_grow(void **at, size_t *capacity, size_t need, size_t item) {
    if (need <= *capacity) return true;
    size_t grown = *capacity > SIZE_MAX / 2 ? need : *capacity * 2;
    if (grown < need) grown = need;
    if (grown < 16) grown = 16;
    void *p = kv_realloc(*at, grown, item);
    if (!p) return false;
    *at = p;
    *capacity = grown;
    return true;
}
