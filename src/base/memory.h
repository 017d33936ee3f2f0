/* memory.h: all memory of the library. Counted, zeroed where stated, and able to fail on purpose in tests.
 * Failing allocations return NULL and leave a message that says how many bytes were asked for; callers return
 * KVANT_NO_MEMORY. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* n * size zeroed bytes, aligned to 16; the product is checked. 0 bytes give a valid pointer. */
void *kv_alloc(size_t n, size_t size);
/* As kv_alloc, aligned to 64 bytes (a cache line, a vector). Freed with kv_free too. */
void *kv_alloc_aligned(size_t n, size_t size);
/* Grows or shrinks; new bytes are not zeroed; the old block stays valid on failure. */
void *kv_realloc(void *p, size_t n, size_t size);
void kv_free(void *p);
/* A copy of n bytes with a NUL behind them. */
char *kv_strndup(const char *s, size_t n);
char *kv_strdup(const char *s);

/* Big buffers straight from the system: zero pages that cost memory only once touched. `bytes` > 0. */
void *kv_pages_map(size_t bytes);
void kv_pages_unmap(void *p, size_t bytes);
/* Bytes of memory that the machine has; 0 if that is not known. */
size_t kv_memory_of_machine(void);
/* Gives the whole pages inside [p, p + bytes) back; they read as zero afterwards. */
void kv_pages_release(void *p, size_t bytes);

/* Allocations made so far, all threads together: a test of "no allocation here" takes the difference. */
int64_t kv_alloc_count(void);
/* Test hook: the n-th allocation from now on fails, and every one after it; n < 0 switches it off. */
void kv_alloc_fail_after(int64_t n);

/* Checked size arithmetic: false and no result on overflow. */
static inline bool kv_add_size(size_t *out, size_t a, size_t b) { return !__builtin_add_overflow(a, b, out); }
static inline bool kv_mul_size(size_t *out, size_t a, size_t b) { return !__builtin_mul_overflow(a, b, out); }
static inline size_t kv_round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

/* Bump allocator: many small objects with one lifetime. */
typedef struct kv_arena {
    struct kv_arena_block *blocks;
} kv_arena;

/* Zeroed, aligned to 16; NULL when out of memory. */
void *kv_arena_alloc(kv_arena *arena, size_t n, size_t size);
char *kv_arena_strndup(kv_arena *arena, const char *s, size_t n);
void kv_arena_clear(kv_arena *arena);

/* Array that grows by doubling: KV_VEC(int) v = {0}; kv_vec_reserve(&v, n). */
#define KV_VEC(type)            \
    struct {                    \
        type *at;               \
        size_t count, capacity; \
    }
bool kv_vec_grow(void **at, size_t *capacity, size_t need, size_t item);
#define kv_vec_reserve(v, need) kv_vec_grow((void **)&(v)->at, &(v)->capacity, (need), sizeof *(v)->at)
/* false when out of memory, the vector is unchanged then. */
#define kv_vec_push(v, item) (kv_vec_reserve((v), (v)->count + 1) && ((v)->at[(v)->count++] = (item), true))
#define kv_vec_clear(v)      (kv_free((v)->at), (v)->at = NULL, (v)->count = (v)->capacity = 0)
