/* check_coding.c: checks of encode and decode, bit for bit against the scalar dtype. */
#include "base/memory.h"
#include "device/cpu/check_case.h"

#include <math.h>
#include <string.h>

static void pick(kv_check_case *c) {
    static const int32_t blocks[] = {1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 63, 65, 129};
    c->shape.n = kv_check_choose(c, blocks, sizeof blocks / sizeof *blocks) * c->kernel->a->block_elems;
}

static size_t coded_bytes(const kv_check_case *c) { return kv_dtype_bytes(c->kernel->a, c->shape.n); }

static void cost(const kv_check_case *c, double *bytes, double *macs) {
    *bytes = (double)c->shape.n * sizeof(float) + (double)coded_bytes(c);
    *macs = 0;
}

/* ---- encode */

static kv_status setup_encode(kv_check_case *c) {
    KV_TRY(kv_fence_open(&c->in[0], (size_t)c->shape.n * sizeof(float), sizeof(float)));
    kv_check_floats(c, (float *)c->in[0].at, c->shape.n);
    return kv_fence_open(&c->out, coded_bytes(c), c->kernel->a->block_bytes % 4 ? 2 : 4);
}

static void run_encode(kv_check_case *c) {
    c->kernel->encode(c->out.at, (const float *)c->in[0].at, c->shape.n);
}

static void verify_against(kv_check_case *c, kv_encode_fn *encode) {
    const kv_dtype *d = c->kernel->a;
    for (int64_t b = 0; b < c->shape.n / d->block_elems; b++) {
        uint8_t want[512];
        encode(want, (const float *)c->in[0].at + b * d->block_elems, d->block_elems);
        const uint8_t *got = c->out.at + b * d->block_bytes;
        for (int32_t i = 0; i < d->block_bytes; i++)
            if (got[i] != want[i])
                kv_check_fault(c, "byte %d of block %lld is %02x, not %02x", i, (long long)b, got[i],
                               want[i]);
    }
}

static void verify_encode(kv_check_case *c) { verify_against(c, c->kernel->a->encode); }

const kv_check_role kv_check_encode = {.pick = pick,
                                       .setup = setup_encode,
                                       .run = run_encode,
                                       .verify = verify_encode,
                                       .cost = cost,
                                       .bench = {{.n = 2048}}};

/* ---- encode_close */

static void run_encode_close(kv_check_case *c) {
    c->kernel->encode_close(c->out.at, (const float *)c->in[0].at, c->shape.n);
}

static void verify_encode_close(kv_check_case *c) { verify_against(c, c->kernel->a->encode_close); }

const kv_check_role kv_check_encode_close = {.pick = pick,
                                             .setup = setup_encode,
                                             .run = run_encode_close,
                                             .verify = verify_encode_close,
                                             .cost = cost,
                                             .bench = {{.n = 2048}}};

/* ---- decode */

static kv_status setup_decode(kv_check_case *c) {
    KV_TRY(kv_fence_open(&c->in[0], coded_bytes(c), 1));
    KV_TRY(kv_check_coded(c, c->kernel->a, c->in[0].at, c->shape.n));
    for (size_t i = 0; c->pattern == KV_CHECK_SPECIAL && i < c->in[0].bytes; i++) /* any bits at all */
        c->in[0].at[i] = (uint8_t)kv_random_u64(&c->random);
    return kv_fence_open(&c->out, (size_t)c->shape.n * sizeof(float), sizeof(float));
}

static void run_decode(kv_check_case *c) { c->kernel->decode((float *)c->out.at, c->in[0].at, c->shape.n); }

static void verify_decode(kv_check_case *c) {
    const kv_dtype *d = c->kernel->a;
    for (int64_t b = 0; b < c->shape.n / d->block_elems; b++) {
        float want[512], *got = (float *)c->out.at + b * d->block_elems;
        d->decode(want, c->in[0].at + b * d->block_bytes, d->block_elems);
        for (int32_t i = 0; i < d->block_elems; i++)
            if (memcmp(&got[i], &want[i], sizeof *got) && !(isnan(got[i]) && isnan(want[i])))
                kv_check_fault(c, "[%lld] is %.9g, not %.9g", (long long)(b * d->block_elems + i),
                               (double)got[i], (double)want[i]);
    }
}

const kv_check_role kv_check_decode = {.pick = pick,
                                       .setup = setup_decode,
                                       .run = run_decode,
                                       .verify = verify_decode,
                                       .cost = cost,
                                       .bench = {{.n = 2048}}};
