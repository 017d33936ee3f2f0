/* encode_close_vec.h: the search of dtype/close.h. The sixteen candidates of a block are the lanes: each
 * number is compared with all of them at once, and no lane is ever summed with its neighbour. */
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/vec.h"
#include "dtype/close_block.h"

enum { KV_CLOSE_VECS = KV_CLOSE_TRIALS / KV_LANES, KV_CLOSE_MAX_BORDERS = 15 };

/* Levels that are given as a list: `n` borders between n + 1 of them. */
typedef struct kv_close_steps {
    float level[KV_CLOSE_MAX_BORDERS + 1], border[KV_CLOSE_MAX_BORDERS];
    int n;         /* 0: levels are whole numbers */
    bool mirrored; /* the upper half of a list that is its own mirror image */
} kv_close_steps;

static inline kv_close_steps kv_close_steps_of(const kv_close_format *f) {
    kv_close_steps s = {0};
    if (!f->levels) return s;
    s.mirrored = true;
    for (int i = 0; i < f->n_levels; i++) s.mirrored &= f->levels[i] == -f->levels[f->n_levels - 1 - i];
    const float *level = f->levels + (s.mirrored ? f->n_levels / 2 : 0);
    s.n = f->n_levels / (s.mirrored ? 2 : 1) - 1;
    for (int i = 0; i <= s.n; i++) s.level[i] = level[i];
    for (int i = 0; i < s.n; i++) s.border[i] = 0.5f * (level[i] + level[i + 1]);
    return s;
}

/* How far z is from the nearest level; the sign is lost where they are mirrored. */
KV_TEMPLATE kv_vec kv_close_miss(kv_vec z, const kv_close_steps *s, int n, kv_vec top) {
    if (n == 0) return kv_vec_sub(z, kv_vec_round(kv_vec_min(kv_vec_max(z, kv_vec_set(0)), top)));
    kv_vec at = n == KV_CLOSE_MAX_BORDERS ? z : kv_vec_abs(z), level = kv_vec_set(s->level[0]);
    KV_REPEAT(i, n) {
        level = kv_vec_if_above(at, kv_vec_set(s->border[i]), kv_vec_set(s->level[i + 1]), level);
    }
    return kv_vec_sub(at, level);
}

KV_TEMPLATE void kv_close_errors(kv_close_trials *t, const float *x, const kv_close_steps *s, int n,
                                 float top) {
    kv_vec inverse[KV_CLOSE_VECS], offset[KV_CLOSE_VECS], sum[KV_CLOSE_VECS];
    KV_REPEAT(v, KV_CLOSE_VECS) {
        inverse[v] = kv_vec_load(t->inverse + v * KV_LANES);
        offset[v] = kv_vec_load(t->offset + v * KV_LANES);
        sum[v] = kv_vec_set(0);
    }
    for (int i = 0; i < KV_CLOSE_ELEMS; i++) {
        KV_REPEAT(v, KV_CLOSE_VECS) {
            kv_vec z = kv_vec_add(kv_vec_mul(kv_vec_set(x[i]), inverse[v]), offset[v]);
            kv_vec miss = kv_close_miss(z, s, n, kv_vec_set(top));
            sum[v] = kv_vec_add(sum[v], kv_vec_mul(miss, miss));
        }
    }
    KV_REPEAT(v, KV_CLOSE_VECS) {
        kv_vec scale = kv_vec_load(t->scale + v * KV_LANES);
        kv_vec_store(t->error + v * KV_LANES, kv_vec_mul(sum[v], kv_vec_mul(scale, scale)));
    }
}

static inline void kv_encode_close_vec(void *dst, const float *src, int64_t n, const kv_close_format *f) {
    const kv_close_steps s = kv_close_steps_of(f);
    const float top = (float)(f->n_levels - 1);
    uint8_t *block = dst;
    for (; n > 0; n -= KV_CLOSE_ELEMS, src += KV_CLOSE_ELEMS, block += f->block_bytes) {
        kv_close_trials t;
        kv_close_code code;
        if (!kv_close_try(&t, src, f)) {
            kv_close_encode(block, src, KV_CLOSE_ELEMS, f);
            continue;
        }
        if (s.n == 0) kv_close_errors(&t, src, &s, 0, top);
        if (s.n == 3) kv_close_errors(&t, src, &s, 3, top);
        if (s.n == 7) kv_close_errors(&t, src, &s, 7, top);
        if (s.n == 15) kv_close_errors(&t, src, &s, 15, top);
        kv_close_finish(&code, &t, kv_close_choose(&t), src, f);
        f->pack(block, &code);
    }
}

/* Defines kv_<role>_<dtype>_<isa>. */
#define KV_ENCODE_CLOSE(role, dtype, isa)                                      \
    kv_encode_fn kv_##role##_##dtype##_##isa;                                  \
    void kv_##role##_##dtype##_##isa(void *dst, const float *src, int64_t n) { \
        kv_encode_close_vec(dst, src, n, &kv_close_##dtype);                   \
    }
#define KV_ENCODE_CLOSE_ALL(isa)               \
    KV_ENCODE_CLOSE(encode_close, q4_0, isa)   \
    KV_ENCODE_CLOSE(encode_close, q4_1, isa)   \
    KV_ENCODE_CLOSE(encode_close, q5_0, isa)   \
    KV_ENCODE_CLOSE(encode_close, q5_1, isa)   \
    KV_ENCODE_CLOSE(encode_close, iq4_nl, isa) \
    KV_ENCODE_CLOSE(encode, n3, isa)           \
    KV_ENCODE_CLOSE(encode, n4, isa)           \
    KV_ENCODE_CLOSE(encode, n6, isa)
