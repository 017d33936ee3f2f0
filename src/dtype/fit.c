/* fit.c: weighted least squares in three steps. One: for each sub-block, quants for a row of trial scales,
 * and for the quants of each trial the best real scale (and minimum); the trial with the least error gives
 * the wish of the sub-block. Two: the wishes become small integers times the block's scale, and the quants
 * are made anew; where there are minima, the integers around both wishes are tried, because rounding one asks
 * for another of the other. Three: the block's scale is solved for once more with all quants fixed, and step
 * two repeats. All of it on numbers divided by the largest magnitude, so that no square overflows. */
#include "dtype/fit.h"

#include "dtype/quant.h"

#include <float.h>
#include <stdbool.h>
#include <string.h>

enum { N_REFITS = 1, STEPS = 4 /* trials each side of the plain scale */ };

/* A block while it is fitted: x / unit, weights, levels as floats. */
typedef struct work {
    const kv_fit_format *format;
    float unit;
    float x[KV_FIT_MAX_ELEMS], weight[KV_FIT_MAX_ELEMS], level[KV_FIT_MAX_ELEMS];
    float nearest[256]; /* of a codebook: the level next to level_min + index */
} work;

/* ---- numbers to levels ---- */

/* Half to even; exact for |v| < 2^22. Additions, so that it vectorizes. */
static inline float nearest_integer(float v) { return (v + 0x1.8p23f) - 0x1.8p23f; }

static inline float clip(float v, float lo, float hi) { return !(v > lo) ? lo : v > hi ? hi : v; }

/* level[i] = the level next to (x[i] + offset) * inverse. A codebook is asked with the nearest integer. */
static void to_levels(float *level, const work *w, const float *x, float offset, float inverse) {
    const kv_fit_format *f = w->format;
    float lo = (float)f->level_min, hi = (float)f->level_max;
    for (int32_t i = 0; i < f->sub_elems; i++)
        level[i] = nearest_integer(clip((x[i] + offset) * inverse, lo, hi));
    if (!f->levels) return;
    for (int32_t i = 0; i < f->sub_elems; i++) level[i] = w->nearest[(int32_t)level[i] - f->level_min];
}

static void fill_nearest(work *w) {
    const kv_fit_format *f = w->format;
    int32_t k = 0;
    for (int32_t v = f->level_min; v <= f->level_max; v++) {
        if (k < 15 && 2 * v > f->levels[k] + f->levels[k + 1]) k++;
        w->nearest[v - f->level_min] = (float)f->levels[k];
    }
}

/* Sum of weight * (x - scale * level + min)^2 over a sub-block. */
static float error_of(const float *x, const float *weight, const float *level, float scale, float min,
                      int32_t n) {
    float sum = 0;
    for (int32_t i = 0; i < n; i++) {
        float e = x[i] - scale * level[i] + min;
        sum += weight[i] * e * e;
    }
    return sum;
}

/* False where there is nothing to fit: all so small that every scale would be zero, or not finite. */
static bool begin(work *w, const float *x, const kv_fit_format *f) {
    int32_t n = f->n_subs * f->sub_elems;
    w->format = f;
    w->unit = fabsf(kv_quant_extreme(x, n));
    if (!(w->unit >= FLT_MIN && w->unit <= FLT_MAX)) return false;
    float sum = 0, inverse = 1.0f / w->unit;
    for (int32_t i = 0; i < n; i++) {
        w->x[i] = x[i] * inverse;
        sum += w->x[i] * w->x[i];
    }
    if (f->levels) fill_nearest(w);
    float rms = sqrtf(sum / (float)n);
    for (int32_t i = 0; i < n; i++) w->weight[i] = rms + fabsf(w->x[i]);
    return true;
}

/* The f16 that `*scale` (a multiple of the unit) becomes; *scale is what is left of it. */
static uint16_t store(float *scale, float unit) {
    uint16_t h = kv_quant_f16(*scale * unit);
    *scale = kv_f16_to_f32(h) / unit;
    return h;
}

static float inverse_of(float scale) { return fabsf(scale) >= FLT_MIN ? 1.0f / scale : 0; }

static void emit_levels(kv_fit *out, const work *w) {
    for (int32_t i = 0; i < w->format->n_subs * w->format->sub_elems; i++)
        out->levels[i] = (int8_t)w->level[i];
}

/* ---- symmetric ---- */

/* The real scale that suits a sub-block best. Trials put the extreme number at either end of the levels, or
 * up to one level beyond or before it. */
static float wish_scale(const work *w, int32_t sub) {
    const kv_fit_format *f = w->format;
    const float *x = w->x + sub * f->sub_elems, *weight = w->weight + sub * f->sub_elems;
    const float ends[2] = {(float)f->level_min, (float)f->level_max};
    const float gap = f->levels ? (float)(f->levels[1] - f->levels[0]) : 1.0f;
    float level[KV_FIT_MAX_ELEMS], extreme = kv_quant_extreme(x, f->sub_elems), best = 0, best_gain = 0;
    if (fabsf(extreme) < FLT_MIN) return 0;
    for (int32_t trial = 0; trial < 2 * (2 * STEPS + 1); trial++) {
        float end = ends[trial & 1], shift = gap * (float)(trial / 2 - STEPS) / (float)STEPS;
        to_levels(level, w, x, 0, (end + shift) / extreme);
        float xl = 0, ll = 0;
        for (int32_t i = 0; i < f->sub_elems; i++) {
            xl += weight[i] * x[i] * level[i];
            ll += weight[i] * level[i] * level[i];
        }
        if (ll > 0 &&
            xl * xl > best_gain * ll) { /* gain: by how much the error is less than with all zeros */
            best_gain = xl * xl / ll;
            best = xl / ll;
        }
    }
    return best;
}

/* The integer scale of a sub-block that is next to its wish; makes the levels for it. Its neighbours were
 * tried: they better the error by a thousandth. */
static int32_t choose_scale(work *w, int32_t sub, float wish, float scale) {
    const kv_fit_format *f = w->format;
    int32_t first = sub * f->sub_elems,
            s = kv_quant_round(wish * inverse_of(scale), f->scale_min, f->scale_max);
    to_levels(w->level + first, w, w->x + first, 0, inverse_of(scale * (float)s));
    return s;
}

/* The block's scale that suits the chosen integers and levels best. */
static float refit_scale(const work *w, const kv_fit *fit, float scale) {
    float xl = 0, ll = 0;
    for (int32_t i = 0; i < w->format->n_subs * w->format->sub_elems; i++) {
        float l = w->level[i] * (float)fit->scales[i / w->format->sub_elems];
        xl += w->weight[i] * w->x[i] * l;
        ll += w->weight[i] * l * l;
    }
    return ll > 0 ? xl / ll : scale;
}

void kv_fit_symmetric(kv_fit *out, const float *x, const kv_fit_format *f) {
    work w = {0};
    float wish[KV_FIT_MAX_SUBS] = {0};
    *out = (kv_fit){0};
    if (!begin(&w, x, f)) return;
    for (int32_t sub = 0; sub < f->n_subs; sub++) wish[sub] = wish_scale(&w, sub);
    int32_t end = -f->scale_min > f->scale_max ? f->scale_min : f->scale_max;
    float scale = kv_quant_extreme(wish, f->n_subs) / (float)end;
    for (int32_t pass = 0; pass <= N_REFITS; pass++) {
        if (pass) scale = refit_scale(&w, out, scale);
        out->scale = store(&scale, w.unit);
        for (int32_t sub = 0; sub < f->n_subs; sub++)
            out->scales[sub] = (int8_t)choose_scale(&w, sub, wish[sub], scale);
    }
    emit_levels(out, &w);
}

/* ---- affine ---- */

typedef struct affine {
    float scale, min;
} affine;

/* Sums over a range, for x ~ a * p - b * q. */
typedef struct normal {
    float pp, pq, qq, xp, xq;
} normal;

static void add(normal *s, float weight, float x, float p, float q) {
    s->pp += weight * p * p;
    s->pq += weight * p * q;
    s->qq += weight * q * q;
    s->xp += weight * x * p;
    s->xq += weight * x * q;
}

/* The a and b, neither negative, with the least error. */
static affine solve(const normal *s) {
    float det = s->pp * s->qq - s->pq * s->pq;
    if (det > 1e-6f * s->pp * s->qq) {
        affine both = {(s->qq * s->xp - s->pq * s->xq) / det, (s->pq * s->xp - s->pp * s->xq) / det};
        if (both.scale >= 0 && both.min >= 0) return both;
    }
    affine one = {s->pp > 0 && s->xp > 0 ? s->xp / s->pp : 0, 0};
    if (one.scale == 0 && s->qq > 0 && s->xq < 0) one.min = -s->xq / s->qq;
    return one;
}

/* The real scale and minimum that suit a sub-block best. Trials stretch its range, zero included, by up to
 * one level. */
static affine wish_affine(const work *w, int32_t sub) {
    const kv_fit_format *f = w->format;
    const float *x = w->x + sub * f->sub_elems, *weight = w->weight + sub * f->sub_elems;
    float level[KV_FIT_MAX_ELEMS], lo, hi, least = FLT_MAX;
    kv_quant_range(&lo, &hi, x, f->sub_elems);
    lo = lo < 0 ? lo : 0;
    affine best = {0, -lo};
    if (!(hi - lo >= FLT_MIN)) return best;
    for (int32_t step = -STEPS; step <= STEPS; step++) {
        to_levels(level, w, x, -lo, ((float)f->level_max + (float)step / (float)STEPS) / (hi - lo));
        normal s = {0};
        for (int32_t i = 0; i < f->sub_elems; i++) add(&s, weight[i], x[i], level[i], 1);
        affine fit = solve(&s);
        float error = error_of(x, weight, level, fit.scale, fit.min, f->sub_elems);
        if (error < least) {
            least = error;
            best = fit;
        }
    }
    return best;
}

/* Chooses the integer scale and minimum of a sub-block next to its wish, and its levels. */
static void choose_affine(kv_fit *out, work *w, int32_t sub, affine wish, affine block) {
    const kv_fit_format *f = w->format;
    const float *x = w->x + sub * f->sub_elems, *weight = w->weight + sub * f->sub_elems;
    float level[KV_FIT_MAX_ELEMS], least = FLT_MAX;
    int32_t s0 = kv_quant_round(wish.scale * inverse_of(block.scale), 0, f->scale_max);
    int32_t m0 = kv_quant_round(wish.min * inverse_of(block.min), 0, f->scale_max);
    for (int32_t trial = 0; trial < 9; trial++) {
        int32_t s = s0 + trial / 3 - 1, m = m0 + trial % 3 - 1;
        if (s < 0 || s > f->scale_max || m < 0 || m > f->scale_max) continue;
        float scale = block.scale * (float)s, min = block.min * (float)m;
        to_levels(level, w, x, min, inverse_of(scale));
        float error = error_of(x, weight, level, scale, min, f->sub_elems);
        if (error < least) {
            least = error;
            out->scales[sub] = (int8_t)s;
            out->mins[sub] = (int8_t)m;
            memcpy(w->level + sub * f->sub_elems, level, (size_t)f->sub_elems * sizeof *level);
        }
    }
}

static affine refit_affine(const work *w, const kv_fit *fit) {
    normal s = {0};
    for (int32_t i = 0; i < w->format->n_subs * w->format->sub_elems; i++) {
        int32_t sub = i / w->format->sub_elems;
        add(&s, w->weight[i], w->x[i], w->level[i] * (float)fit->scales[sub], (float)fit->mins[sub]);
    }
    return solve(&s);
}

void kv_fit_affine(kv_fit *out, const float *x, const kv_fit_format *f) {
    work w = {0};
    affine wish[KV_FIT_MAX_SUBS] = {0}, block = {0};
    *out = (kv_fit){0};
    if (!begin(&w, x, f)) return;
    for (int32_t sub = 0; sub < f->n_subs; sub++) {
        wish[sub] = wish_affine(&w, sub);
        block.scale = fmaxf(block.scale, wish[sub].scale / (float)f->scale_max);
        block.min = fmaxf(block.min, wish[sub].min / (float)f->scale_max);
    }
    for (int32_t pass = 0; pass <= N_REFITS; pass++) {
        if (pass) block = refit_affine(&w, out);
        out->scale = store(&block.scale, w.unit);
        out->min = store(&block.min, w.unit);
        for (int32_t sub = 0; sub < f->n_subs; sub++) choose_affine(out, &w, sub, wish[sub], block);
    }
    emit_levels(out, &w);
}
