/* check_case.c: fenced memory, input, comparison. */
#include "device/cpu/check_case.h"

#include "base/half.h"
#include "base/memory.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

/* [page(s): guard bytes ... | payload | up to align - 1 guard bytes][page without access] */
kv_status kv_fence_open(kv_fence *f, size_t bytes, size_t align) {
    kv_fence_close(f);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inside = kv_round_up(bytes + align + GUARD, page);
    uint8_t *map = kv_pages_map(inside + page);
    if (!map) return KVANT_NO_MEMORY;
    *f = (kv_fence){.map = map, .map_bytes = inside + page, .bytes = bytes};
    if (mprotect(map + inside, page, PROT_NONE)) return kv_fail(KVANT_FAILED, "mprotect of a page failed");
    f->at = map + (inside - bytes) / align * align;
    memset(map, GUARD_BYTE, inside);
    memset(f->at, 0xff, bytes);
    return KVANT_OK;
}

void kv_fence_close(kv_fence *f) {
    if (f->map) kv_pages_unmap(f->map, f->map_bytes);
    *f = (kv_fence){0};
}

bool kv_fence_intact(const kv_fence *f) {
    if (!f->map) return true;
    for (const uint8_t *p = f->at - GUARD; p < f->at; p++)
        if (*p != GUARD_BYTE) return false;
    const uint8_t *end = f->map + f->map_bytes - (size_t)sysconf(_SC_PAGESIZE);
    for (const uint8_t *p = f->at + f->bytes; p < end; p++)
        if (*p != GUARD_BYTE) return false;
    return true;
}

int64_t kv_check_between(kv_check_case *c, int64_t low, int64_t high) {
    return low + (int64_t)(kv_random_u64(&c->random) % (uint64_t)(high - low + 1));
}

int64_t kv_check_choose(kv_check_case *c, const int32_t *list, int32_t n) {
    return list[kv_check_between(c, 0, n - 1)];
}

bool kv_check_chance(kv_check_case *c, double chance) { return kv_random_unit(&c->random) < chance; }

static float special(kv_check_case *c) {
    static const float list[] = {INFINITY, -INFINITY, NAN};
    return kv_check_chance(c, 0.1) ? list[kv_check_between(c, 0, 2)] : kv_random_normal(&c->random);
}

static float mixed(kv_check_case *c) {
    float x = kv_random_normal(&c->random);
    return kv_check_chance(c, 0.1) ? copysignf(0, x) : ldexpf(x, (int)kv_check_between(c, -145, 60));
}

static float number(kv_check_case *c) {
    float x = kv_random_normal(&c->random);
    switch (c->pattern) {
    case KV_CHECK_ZERO: return 0;
    case KV_CHECK_HUGE: return x * 1e17f;
    case KV_CHECK_TINY: return x * 1e-30f;
    case KV_CHECK_SUBNORMAL: return x * 1e-41f;
    case KV_CHECK_MIXED: return mixed(c);
    case KV_CHECK_TIES: return (float)kv_check_between(c, -254, 254) * 0.5f;
    case KV_CHECK_SPECIAL: return special(c);
    default: return x;
    }
}

void kv_check_floats(kv_check_case *c, float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = number(c);
    for (int64_t i = 0; i < n && c->pattern == KV_CHECK_TIES; i += 32)
        x[i] = 127; /* every block has scale 1 */
    if (n && c->pattern == KV_CHECK_OUTLIER) x[kv_check_between(c, 0, n - 1)] *= 1e6f;
}

/* Random bits until they decode to finite numbers. */
static void random_blocks(kv_check_case *c, const kv_dtype *dtype, uint8_t *dst, int64_t n) {
    float x[512];
    for (; n > 0; n -= dtype->block_elems, dst += dtype->block_bytes) {
        bool finite;
        do {
            for (int32_t i = 0; i < dtype->block_bytes; i++) dst[i] = (uint8_t)kv_random_u64(&c->random);
            dtype->decode(x, dst, dtype->block_elems);
            finite = true;
            for (int32_t i = 0; i < dtype->block_elems; i++) finite &= fabsf(x[i]) < 1e17f;
        } while (!finite);
    }
}

kv_status kv_check_coded(kv_check_case *c, const kv_dtype *dtype, void *dst, int64_t n) {
    if (!dtype->encode || (c->pattern == KV_CHECK_NORMAL && kv_check_chance(c, 0.5))) {
        random_blocks(c, dtype, dst, n);
        return KVANT_OK;
    }
    float *x = kv_alloc((size_t)n, sizeof *x);
    if (!x) return KVANT_NO_MEMORY;
    kv_check_floats(c, x, n);
    /* f16 must stay finite */
    for (int64_t i = 0; i < n && c->pattern == KV_CHECK_HUGE; i++) x[i] *= 1e-14f;
    for (int64_t i = 0; i < n && c->pattern == KV_CHECK_MIXED; i++) x[i] = fmodf(x[i], 6e4f);
    for (int64_t i = 0; i < n && c->pattern == KV_CHECK_OUTLIER; i++) x[i] *= 1e-3f;
    dtype->encode(dst, x, n);
    kv_free(x);
    return KVANT_OK;
}

void kv_check_fault(kv_check_case *c, const char *format, ...) {
    kv_check_result *r = c->result;
    if (r->passed) {
        const kv_check_shape *s = &c->shape;
        int at = snprintf(r->fault, sizeof r->fault, "%s n %lld rows %d columns %d gap %d pattern %d%s: ",
                          s->dtype ? s->dtype->name : "f32", (long long)s->n, s->rows, s->columns, s->gap,
                          (int)c->pattern, s->in_place ? " in place" : "");
        va_list args;
        va_start(args, format);
        vsnprintf(r->fault + at, sizeof r->fault - (size_t)at, format, args);
        va_end(args);
    }
    r->passed = false;
}

void kv_check_within(kv_check_case *c, int64_t i, float got, double want, double bound) {
    if (isnan(want)) {
        if (!isnan(got)) kv_check_fault(c, "[%lld] is %g, not NaN", (long long)i, (double)got);
        return;
    }
    double error = fabs((double)got - want);
    if (!(error <= bound))
        kv_check_fault(c, "[%lld] is %.9g, not %.9g within %.2g", (long long)i, (double)got, want, bound);
    else if (error / bound > c->result->worst)
        c->result->worst = error / bound;
}

void kv_check_close(kv_check_case *c, int64_t i, float got, double want, double terms, double k) {
    if (terms > 1e38) return; /* may overflow on the way */
    kv_check_within(c, i, got, want, k * (0x1p-24 * terms + 0x1p-149));
}
