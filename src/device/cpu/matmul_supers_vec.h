/* matmul_supers_vec.h: the formats with blocks of 256 for matmul_vec.h: sub-blocks with small integer scales.
 */
#pragma once

#include "device/cpu/matmul_unpack_vec.h"
#include "dtype/iq4_xs.h"
#include "dtype/q2_k.h"
#include "dtype/q3_k.h"
#include "dtype/q4_k.h"
#include "dtype/q5_k.h"
#include "dtype/q6_k.h"

/* out[i] = unit * byte i of each row, i < 4. */
KV_TEMPLATE void kv_scale_bytes(kv_vec out[4], kv_vec unit, kv_bytes v) {
    KV_REPEAT(i, 4) { out[i] = kv_vec_mul(unit, kv_vec_from_int(kv_bytes_lane(v, i))); }
}

KV_TEMPLATE kv_vec kv_vec_negative(kv_vec v) { return kv_vec_mul(v, kv_vec_set(-1)); }

/* ---- q4_k, q5_k */

/* Both have the pair of f16 first and the packed scales (kv_q4_k_scales) behind it. */
KV_TEMPLATE void kv_scales_q4_k(kv_tile_scales *s, kv_tile_block b) {
    kv_vec scale, min;
    kv_tile_half_pair(&scale, &min, b, KV_PLANE(q4_k, scale));
    min = kv_vec_negative(min);
    kv_bytes v[3];
    KV_REPEAT(i, 3) { v[i] = kv_tile_quad(b, KV_PLANE(q4_k, scales), i); }
    kv_scale_bytes(s->scale, scale, kv_bytes_and(v[0], kv_bytes_set(63)));
    kv_scale_bytes(s->min, min, kv_bytes_and(v[1], kv_bytes_set(63)));
    kv_scale_bytes(s->scale + 4, scale,
                   kv_bytes_or(kv_bytes_move(v[2], 0, 0, 15), kv_bytes_move(v[0], 6, 4, 48)));
    kv_scale_bytes(s->min + 4, min,
                   kv_bytes_or(kv_bytes_move(v[2], 4, 0, 15), kv_bytes_move(v[1], 6, 4, 48)));
}
KV_TEMPLATE void kv_unpack_q4_k(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    KV_REPEAT(i, KV_QUADS) {
        q[i] = kv_bytes_move(kv_tile_quad(b, KV_PLANE(q4_k, quants), KV_QUADS * group + i), 4 * step, 0, 15);
    }
}
KV_TEMPLATE kv_tile_format kv_tile_q4_k(void) {
    return (kv_tile_format){.elems = KV_Q4_K_ELEMS,
                            .bytes = sizeof(kv_q4_k_block),
                            .sub_elems = 32,
                            .steps = 2,
                            .max = 15,
                            .has_min = true,
                            .scales = kv_scales_q4_k,
                            .unpack = kv_unpack_q4_k};
}

KV_TEMPLATE void kv_unpack_q5_k(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    const kv_bytes select = kv_bytes_set(1 << (2 * group + step));
    KV_REPEAT(i, KV_QUADS) {
        kv_bytes quad = kv_tile_quad(b, KV_PLANE(q5_k, quants), KV_QUADS * group + i);
        q[i] = kv_bytes_set_if(kv_bytes_move(quad, 4 * step, 0, 15), kv_tile_quad(b, KV_PLANE(q5_k, high), i),
                               select, 16);
    }
}
KV_TEMPLATE kv_tile_format kv_tile_q5_k(void) {
    return (kv_tile_format){.elems = KV_Q5_K_ELEMS,
                            .bytes = sizeof(kv_q5_k_block),
                            .sub_elems = 32,
                            .steps = 2,
                            .max = 31,
                            .has_min = true,
                            .scales = kv_scales_q4_k,
                            .unpack = kv_unpack_q5_k};
}

/* ---- q6_k */

KV_TEMPLATE void kv_scales_q6_k(kv_tile_scales *s, kv_tile_block b) {
    kv_vec scale = kv_tile_half(b, KV_PLANE(q6_k, scale));
    KV_REPEAT(i, 16) {
        kv_bytes quad = kv_tile_quad(b, KV_PLANE(q6_k, scales), i / 4);
        s->scale[i] = kv_vec_mul(scale, kv_vec_from_int(kv_bytes_signed_lane(quad, i % 4)));
    }
}
KV_TEMPLATE void kv_unpack_q6_k(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    KV_REPEAT(i, KV_QUADS) {
        kv_bytes low = kv_tile_quad(b, KV_PLANE(q6_k, low), 2 * KV_QUADS * group + KV_QUADS * (step % 2) + i);
        kv_bytes high = kv_tile_quad(b, KV_PLANE(q6_k, high), KV_QUADS * group + i);
        q[i] = kv_bytes_or(kv_bytes_move(low, 4 * (step / 2), 0, 15), kv_bytes_move(high, 2 * step, 4, 48));
    }
}
KV_TEMPLATE kv_tile_format kv_tile_q6_k(void) {
    return (kv_tile_format){.elems = KV_Q6_K_ELEMS,
                            .bytes = sizeof(kv_q6_k_block),
                            .sub_elems = 16,
                            .steps = 4,
                            .max = 63,
                            .offset = 32,
                            .scales = kv_scales_q6_k,
                            .unpack = kv_unpack_q6_k};
}

/* ---- q2_k, q3_k */

KV_TEMPLATE void kv_scales_q2_k(kv_tile_scales *s, kv_tile_block b) {
    kv_vec scale, min;
    kv_tile_half_pair(&scale, &min, b, KV_PLANE(q2_k, scale));
    min = kv_vec_negative(min);
    KV_REPEAT(i, 4) {
        kv_bytes quad = kv_tile_quad(b, KV_PLANE(q2_k, scales), i);
        kv_scale_bytes(s->scale + 4 * i, scale, kv_bytes_move(quad, 0, 0, 15));
        kv_scale_bytes(s->min + 4 * i, min, kv_bytes_move(quad, 4, 0, 15));
    }
}
KV_TEMPLATE void kv_unpack_q2_k(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    KV_REPEAT(i, KV_QUADS) {
        q[i] = kv_bytes_move(kv_tile_quad(b, KV_PLANE(q2_k, quants), KV_QUADS * group + i), 2 * step, 0, 3);
    }
}
KV_TEMPLATE kv_tile_format kv_tile_q2_k(void) {
    return (kv_tile_format){.elems = KV_Q2_K_ELEMS,
                            .bytes = sizeof(kv_q2_k_block),
                            .sub_elems = 16,
                            .steps = 4,
                            .max = 3,
                            .has_min = true,
                            .scales = kv_scales_q2_k,
                            .unpack = kv_unpack_q2_k};
}

/* Scales of sub-blocks 4 g to 4 g + 3: see kv_q3_k_scale. */
KV_TEMPLATE void kv_scales_q3_k(kv_tile_scales *s, kv_tile_block b) {
    kv_vec scale = kv_tile_half(b, KV_PLANE(q3_k, scale));
    kv_bytes high = kv_tile_quad(b, KV_PLANE(q3_k, scales), 2);
    KV_REPEAT(g, 4) {
        kv_bytes low = kv_tile_quad(b, KV_PLANE(q3_k, scales), g % 2);
        kv_bytes v = kv_bytes_or(kv_bytes_move(low, 4 * (g / 2), 0, 15), kv_bytes_move(high, 2 * g, 4, 48));
        KV_REPEAT(i, 4) {
            kv_vec_int n = kv_vec_int_sub(kv_bytes_lane(v, i), kv_vec_int_set(32));
            s->scale[4 * g + i] = kv_vec_mul(scale, kv_vec_from_int(n));
        }
    }
}
KV_TEMPLATE void kv_unpack_q3_k(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    const kv_bytes select = kv_bytes_set(1 << (4 * group + step));
    KV_REPEAT(i, KV_QUADS) {
        kv_bytes quad = kv_tile_quad(b, KV_PLANE(q3_k, quants), KV_QUADS * group + i);
        q[i] = kv_bytes_set_if(kv_bytes_move(quad, 2 * step, 0, 3), kv_tile_quad(b, KV_PLANE(q3_k, high), i),
                               select, 4);
    }
}
KV_TEMPLATE kv_tile_format kv_tile_q3_k(void) {
    return (kv_tile_format){.elems = KV_Q3_K_ELEMS,
                            .bytes = sizeof(kv_q3_k_block),
                            .sub_elems = 16,
                            .steps = 4,
                            .max = 7,
                            .offset = 4,
                            .scales = kv_scales_q3_k,
                            .unpack = kv_unpack_q3_k};
}

/* ---- iq4_xs */

KV_TEMPLATE void kv_scales_iq4_xs(kv_tile_scales *s, kv_tile_block b) {
    kv_vec scale = kv_tile_half(b, KV_PLANE(iq4_xs, scale));
    kv_vec_int low = kv_tile_quad(b, KV_PLANE(iq4_xs, scales_low), 0);
    kv_vec_int high = kv_tile_short(b, KV_PLANE(iq4_xs, scales_high));
    KV_REPEAT(i, 8) {
        kv_vec_int l = kv_vec_int_and(kv_vec_int_shift_right(low, 4 * i), kv_vec_int_set(15));
        kv_vec_int h = kv_vec_int_and(kv_vec_int_shift_right(high, 2 * i), kv_vec_int_set(3));
        kv_vec_int n = kv_vec_int_or(l, kv_vec_int_shift_left(h, 4));
        s->scale[i] = kv_vec_mul(scale, kv_vec_from_int(kv_vec_int_sub(n, kv_vec_int_set(32))));
    }
}
KV_TEMPLATE void kv_unpack_iq4_xs(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    (void)step;
    kv_unpack_levels(q, b, KV_PLANE(iq4_xs, quants), 4 * group);
}
KV_TEMPLATE kv_tile_format kv_tile_iq4_xs(void) {
    return (kv_tile_format){.elems = KV_IQ4_XS_ELEMS,
                            .bytes = sizeof(kv_iq4_xs_block),
                            .sub_elems = 32,
                            .steps = 1,
                            .is_signed = true,
                            .scales = kv_scales_iq4_xs,
                            .unpack = kv_unpack_iq4_xs};
}
