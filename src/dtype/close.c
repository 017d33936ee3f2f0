/* close.c: the search of close.h for every processor, and the truth that its kernels are held to. */
#include "dtype/close.h"

#include "dtype/close_block.h"

static void errors_whole(kv_close_trials *t, const float *x, const kv_close_format *f) {
    float top = (float)(f->n_levels - 1);
    for (int i = 0; i < KV_CLOSE_ELEMS; i++) KV_CLOSE_EACH(k) {
            float z = x[i] * t->inverse[k] + t->offset[k];
            float miss = z - kv_close_round(kv_close_clip(z, 0, top));
            t->error[k] += miss * miss;
        }
}

static void errors_listed(kv_close_trials *t, const float *x, const kv_close_format *f) {
    for (int i = 0; i < KV_CLOSE_ELEMS; i++) {
        float z[KV_CLOSE_TRIALS], level[KV_CLOSE_TRIALS];
        KV_CLOSE_EACH(k) z[k] = x[i] * t->inverse[k] + t->offset[k];
        KV_CLOSE_EACH(k) level[k] = f->levels[0];
        for (int32_t l = 1; l < f->n_levels; l++) {
            float border = 0.5f * (f->levels[l - 1] + f->levels[l]);
            KV_CLOSE_EACH(k) level[k] = z[k] > border ? f->levels[l] : level[k];
        }
        KV_CLOSE_EACH(k) t->error[k] += (z[k] - level[k]) * (z[k] - level[k]);
    }
}

static void encode_block(void *block, const float *x, const kv_close_format *f) {
    kv_close_trials t = {0};
    kv_close_code code;
    float tame[KV_CLOSE_ELEMS];
    if (!kv_close_try(&t, x, f)) {
        for (int i = 0; i < KV_CLOSE_ELEMS; i++)
            tame[i] = isnan(x[i]) ? 0 : kv_close_clip(x[i], -0x1p50f, 0x1p50f);
        x = tame;
        kv_close_try(&t, x, f);
    }
    if (f->levels)
        errors_listed(&t, x, f);
    else
        errors_whole(&t, x, f);
    KV_CLOSE_EACH(k) t.error[k] *= t.scale[k] * t.scale[k];
    int best = kv_close_choose(&t);
    kv_close_finish(&code, &t, best, x, f);
    f->pack(block, &code);
}

void kv_close_encode(void *dst, const float *src, int64_t n, const kv_close_format *f) {
    uint8_t *block = dst;
    for (; n > 0; n -= KV_CLOSE_ELEMS, src += KV_CLOSE_ELEMS, block += f->block_bytes)
        encode_block(block, src, f);
}
