/* kernel.c: the kernel table, made from kernels.inc, and the choice from it. */
#include "device/cpu/kernel.h"

#include <stdatomic.h>
#include <stddef.h>

#define KV_ANY(role, a, b, layout, flags, name) kv_##role##_fn name;
#if defined(__x86_64__) && !defined(KVANT_NO_SIMD)
#define KV_X86 KV_ANY
#else
#define KV_X86(...)
#endif
#if defined(__aarch64__) && !defined(KVANT_NO_SIMD)
#define KV_ARM KV_ANY
#else
#define KV_ARM(...)
#endif
#include "device/cpu/kernels.inc"
#undef KV_ANY

#define kv_dtype_any  (*(const kv_dtype *)NULL)
#define kv_layout_any (*(const kv_layout *)NULL)

static const kv_kernel kernels[] = {
#define KV_ANY(role_, a_, b_, layout_, flags, name_) \
    {.name = #name_,                                 \
     .role = KV_ROLE_##role_,                        \
     .a = &kv_dtype_##a_,                            \
     .b = &kv_dtype_##b_,                            \
     .layout = &kv_layout_##layout_,                 \
     .cpu = flags,                                   \
     .role_ = name_},
#include "device/cpu/kernels.inc"
};

static const kv_kernel *outside[KV_MAX_OUTSIDE_KERNELS];
static atomic_int n_outside;

static int32_t outside_count(void) { return atomic_load_explicit(&n_outside, memory_order_acquire); }

kv_status kv_kernel_add(const kv_kernel *k) {
    int32_t n = outside_count();
    if (n == KV_MAX_OUTSIDE_KERNELS)
        return kv_fail(KVANT_INVALID, "kernel %s: there are %d from outside already", k->name, n);
    outside[n] = k;
    atomic_store_explicit(&n_outside, n + 1, memory_order_release);
    return KVANT_OK;
}

int32_t kv_kernel_count(void) { return outside_count() + (int32_t)(sizeof kernels / sizeof *kernels); }

const kv_kernel *kv_kernel_at(int32_t i) {
    int32_t n = outside_count();
    return i < n ? outside[i] : &kernels[i - n];
}

const char *kv_role_name(kv_role role) {
    static const char *const names[KV_N_ROLES] = {"matmul", "panel",    "encode",     "encode_close",
                                                  "decode", "score",    "accumulate", "exp_sum",
                                                  "norm",   "glu_silu", "glu_gelu"};
    return names[role];
}

const kv_kernel *kv_kernel_pick(kv_role role, const kv_dtype *a, const kv_dtype *b, const kv_layout *layout,
                                unsigned cpu) {
    for (int32_t i = 0; i < kv_kernel_count(); i++) {
        const kv_kernel *k = kv_kernel_at(i);
        if (k->role == role && (!k->a || k->a == a) && (!k->b || k->b == b) &&
            (!k->layout || k->layout == layout) && (k->cpu & cpu) == k->cpu)
            return k;
    }
    return NULL;
}
