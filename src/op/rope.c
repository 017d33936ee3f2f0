/* rope.c: frequencies, angles, rotation. Angles in double: positions may grow for ever. */
#include "op/rope.h"

#include <math.h>

static const double two_pi = 6.283185307179586;

/* YaRN: dimension (as a real number of pairs) whose wave makes `rotations` turns over the original context.
 */
static double yarn_pair(const kv_rope_spec *s, double rotations) {
    return s->n_rot * log(s->n_ctx_original / (rotations * two_pi)) / (2 * log(s->base));
}

/* YaRN section 3.2: 1 where the pair turns fast (kept as trained), 0 where it is slow (interpolated). */
static double yarn_keep(const kv_rope_spec *s, int32_t pair) {
    double low = floor(yarn_pair(s, s->yarn_beta_fast)), high = ceil(yarn_pair(s, s->yarn_beta_slow));
    low = fmax(low, 0);
    high = fmin(high, s->n_rot - 1);
    double ramp = (pair - low) / fmax(high - low, 0.001);
    return 1 - fmin(fmax(ramp, 0), 1);
}

void kv_rope_frequencies(double *freq, const kv_rope_spec *s) {
    for (int32_t i = 0; i < s->n_rot / 2; i++) {
        double f = pow(s->base, -2.0 * i / s->n_rot);
        if (s->factors) f /= (double)s->factors[i];
        if (s->yarn_factor > 1) {
            double keep = yarn_keep(s, i);
            f = f * keep + f / s->yarn_factor * (1 - keep);
        }
        freq[i] = f / s->linear;
    }
}

void kv_rope_table_row(float *row, const kv_rope *rope, double position, float magnitude) {
    int32_t half = rope->n_rot / 2;
    for (int32_t i = 0; i < half; i++) {
        double angle = position * rope->freq[i];
        row[i] = (float)cos(angle) * magnitude;
        row[half + i] = (float)sin(angle) * magnitude;
    }
}

void kv_rope_rotate(float *head, const kv_rope *rope, const float *row) {
    int32_t half = rope->n_rot / 2;
    const float *cosine = row, *sine = row + half;
    if (rope->pairing == KV_ROPE_HALVES) {
        float *a = head, *b = head + half;
        for (int32_t i = 0; i < half; i++) {
            float x = a[i], y = b[i];
            a[i] = x * cosine[i] - y * sine[i];
            b[i] = y * cosine[i] + x * sine[i];
        }
    } else {
        for (int32_t i = 0; i < half; i++) {
            float x = head[2 * i], y = head[2 * i + 1];
            head[2 * i] = x * cosine[i] - y * sine[i];
            head[2 * i + 1] = y * cosine[i] + x * sine[i];
        }
    }
}
