/* close_block.h: the search of close.h for one block, for the files that compile it. Trials lie side by side
 * in arrays, and every loop over them is one that compilers turn into vectors; a trial's error is summed over
 * the numbers in their order, so that the result does not depend on how wide vectors are. */
#pragma once

#include "base/half.h"
#include "dtype/close.h"
#include "dtype/shift.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

/* Fixed counts: the compiler unrolls them and keeps the trials in registers. */
#define KV_CLOSE_EACH(t) for (int t = 0; t < KV_CLOSE_TRIALS; t++)

typedef struct kv_close_trials {
    float scale[KV_CLOSE_TRIALS], add[KV_CLOSE_TRIALS];      /* add: the minimum or the number of the shift */
    float inverse[KV_CLOSE_TRIALS], offset[KV_CLOSE_TRIALS]; /* x * inverse + offset is in levels */
    float error[KV_CLOSE_TRIALS];
} kv_close_trials;

typedef struct kv_close_ends {
    float low, high, largest; /* largest: in magnitude */
} kv_close_ends;

/* Half to even, |v| < 2^22. */
static inline float kv_close_round(float v) { return (v + 0x1.8p23f) - 0x1.8p23f; }

/* NaN gives low. */
static inline float kv_close_clip(float v, float low, float high) {
    float above = v > low ? v : low;
    return above < high ? above : high;
}

/* The number next to x that f16 holds with its `drop` lowest bits zero; at most the largest of them. */
static inline float kv_close_half(float x, int drop) {
    uint32_t bits = kv_f32_bits(x), sign = bits & 0x80000000u, size = bits & 0x7fffffffu;
    uint32_t normal = (size + (0x1000u << drop)) & ~((0x2000u << drop) - 1);
    float small = 0x0.8p0f * (float)(1 << drop), largest = 65536.0f - 32.0f * (float)(1 << drop);
    float subnormal = (kv_f32_from_bits(size) + small) - small;
    float rounded = kv_f32_from_bits(size) < 0x1p-14f ? subnormal : kv_f32_from_bits(normal);
    rounded = rounded < largest ? rounded : largest;
    return kv_f32_from_bits(kv_f32_bits(rounded) | sign);
}

static inline kv_close_ends kv_close_find_ends(const float *x) {
    float low[8], high[8];
    for (int l = 0; l < 8; l++) low[l] = high[l] = x[l];
    for (int i = 8; i < KV_CLOSE_ELEMS; i += 8)
        for (int l = 0; l < 8; l++) {
            low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
            high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
        }
    for (int l = 1; l < 8; l++) {
        low[0] = low[l] < low[0] ? low[l] : low[0];
        high[0] = high[l] > high[0] ? high[l] : high[0];
    }
    return (kv_close_ends){low[0], high[0], -low[0] > high[0] ? -low[0] : high[0]};
}

/* ---- candidates ---- */

static inline void kv_close_try_scales(kv_close_trials *t, kv_close_ends e, const kv_close_format *f) {
    float base = e.largest / -f->lowest, start = f->levels ? 0 : -f->lowest;
    KV_CLOSE_EACH(i) {
        t->scale[i] = kv_close_half(base * f->tries[0][i], 0);
        t->inverse[i] = 1.0f / t->scale[i];
        t->offset[i] = start;
        t->add[i] = 0;
    }
}

static inline void kv_close_try_mins(kv_close_trials *t, kv_close_ends e, const kv_close_format *f) {
    float range = e.high - e.low, step = range / (float)(f->n_levels - 1);
    KV_CLOSE_EACH(i) {
        t->scale[i] = kv_close_half(step * (1.0f - f->tries[0][i] - f->tries[1][i]), 0);
        t->add[i] = kv_close_half(e.low + range * f->tries[0][i], 0);
        t->inverse[i] = 1.0f / t->scale[i];
        t->offset[i] = -t->add[i] * t->inverse[i];
    }
}

static inline void kv_close_try_shifts(kv_close_trials *t, kv_close_ends e, const kv_close_format *f) {
    float range = (e.high - e.low) / (-2.0f * f->lowest), reach = e.largest / (7.5f * f->unit - f->lowest);
    float base = range > reach ? range : reach, middle = 0.5f * (e.high + e.low) / f->unit;
    float start = f->levels ? 0 : -f->lowest;
    KV_CLOSE_EACH(i) {
        t->scale[i] = KV_SHIFT_SCALE * kv_close_half(base * f->tries[0][i] / KV_SHIFT_SCALE, 4);
        t->inverse[i] = 1.0f / t->scale[i];
        float nearest = kv_close_round(kv_close_clip(middle * t->inverse[i], -16, 16) + 7.0f);
        t->add[i] = kv_close_clip(nearest + f->tries[1][i], 0, 15);
        t->offset[i] = start - f->unit * (t->add[i] - 7.5f);
    }
}

/* False for a block with a number beyond 2^50 or NaN. */
static inline bool kv_close_try(kv_close_trials *t, const float *x, const kv_close_format *f) {
    bool ordinary = true;
    for (int i = 0; i < KV_CLOSE_ELEMS; i++) ordinary &= fabsf(x[i]) <= 0x1p50f;
    if (!ordinary) return false;
    kv_close_ends ends = kv_close_find_ends(x);
    if (f->kind == KV_CLOSE_SCALE)
        kv_close_try_scales(t, ends, f);
    else if (f->kind == KV_CLOSE_MIN)
        kv_close_try_mins(t, ends, f);
    else
        kv_close_try_shifts(t, ends, f);
    return true;
}

/* ---- the choice ---- */

/* The first trial with the least error. A scale that is too small for f16 has no finite error; where all are,
 * the block is zero, or all its minimum. */
static inline int kv_close_choose(kv_close_trials *t) {
    int best = -1;
    float least = FLT_MAX;
    KV_CLOSE_EACH(i) {
        bool better = t->error[i] < least;
        least = better ? t->error[i] : least;
        best = better ? i : best;
    }
    if (best >= 0) return best;
    t->scale[0] = t->inverse[0] = 0;
    return 0;
}

static inline void kv_close_finish(kv_close_code *code, const kv_close_trials *t, int best, const float *x,
                                   const kv_close_format *f) {
    float inverse = t->inverse[best], offset = t->offset[best], top = (float)(f->n_levels - 1);
    int32_t quants[KV_CLOSE_ELEMS] = {0};
    if (f->levels)
        for (int32_t k = 0; k + 1 < f->n_levels; k++) {
            float border = 0.5f * (f->levels[k] + f->levels[k + 1]);
            for (int i = 0; i < KV_CLOSE_ELEMS; i++) quants[i] += x[i] * inverse + offset > border;
        }
    else
        for (int i = 0; i < KV_CLOSE_ELEMS; i++)
            quants[i] = (int32_t)kv_close_round(kv_close_clip(x[i] * inverse + offset, 0, top));
    for (int i = 0; i < KV_CLOSE_ELEMS; i++) code->quants[i] = (uint8_t)quants[i];
    float unit = f->kind == KV_CLOSE_SHIFT ? KV_SHIFT_SCALE : 1;
    code->first = kv_f16_from_f32(t->scale[best] / unit);
    code->second = f->kind == KV_CLOSE_MIN ? kv_f16_from_f32(t->add[best]) : 0;
    if (f->kind == KV_CLOSE_SHIFT) code->first |= (uint16_t)t->add[best];
}
