/* matmul_blocks_vec.h: the formats with blocks of 32 for matmul_vec.h. */
#pragma once

#include "device/cpu/matmul_unpack_vec.h"
#include "dtype/iq4_nl.h"
#include "dtype/n3.h"
#include "dtype/n4.h"
#include "dtype/n6.h"
#include "dtype/q4_0.h"
#include "dtype/q4_1.h"
#include "dtype/q5_0.h"
#include "dtype/q5_1.h"
#include "dtype/q8_0.h"

/* Adds `value`, a bit that is clear, to element i where bit i of the plane is set. */
KV_TEMPLATE void kv_unpack_bits(kv_bytes q[], kv_tile_block b, size_t plane, int value) {
    const kv_bytes select[2] = {kv_bytes_set4((const int8_t[]){1, 2, 4, 8}),
                                kv_bytes_set4((const int8_t[]){16, 32, 64, -128})};
    kv_bytes bits = kv_tile_quad(b, plane, 0);
    KV_REPEAT(i, KV_QUADS) {
        q[i] = kv_bytes_set_if(q[i], kv_bytes_spread(bits, i / 2), select[i % 2], value);
    }
}

/* ---- q4_0, q4_1 */

KV_TEMPLATE void kv_scales_q4_0(kv_tile_scales *s, kv_tile_block b) {
    s->scale[0] = kv_tile_half(b, KV_PLANE(q4_0, scale));
}
KV_TEMPLATE void kv_unpack_q4_0(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    (void)group, (void)step;
    kv_unpack_nibbles(q, b, KV_PLANE(q4_0, quants), 0);
}
KV_TEMPLATE kv_tile_format kv_tile_q4_0(void) {
    return (kv_tile_format){.elems = KV_Q4_0_ELEMS,
                            .bytes = sizeof(kv_q4_0_block),
                            .sub_elems = 32,
                            .steps = 1,
                            .max = 15,
                            .offset = 8,
                            .scales = kv_scales_q4_0,
                            .unpack = kv_unpack_q4_0};
}

KV_TEMPLATE void kv_scales_q4_1(kv_tile_scales *s, kv_tile_block b) {
    kv_tile_half_pair(&s->scale[0], &s->min[0], b, KV_PLANE(q4_1, scale));
}
KV_TEMPLATE void kv_unpack_q4_1(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    (void)group, (void)step;
    kv_unpack_nibbles(q, b, KV_PLANE(q4_1, quants), 0);
}
KV_TEMPLATE kv_tile_format kv_tile_q4_1(void) {
    return (kv_tile_format){.elems = KV_Q4_1_ELEMS,
                            .bytes = sizeof(kv_q4_1_block),
                            .sub_elems = 32,
                            .steps = 1,
                            .max = 15,
                            .has_min = true,
                            .scales = kv_scales_q4_1,
                            .unpack = kv_unpack_q4_1};
}

/* ---- q5_0, q5_1 */

KV_TEMPLATE void kv_scales_q5_0(kv_tile_scales *s, kv_tile_block b) {
    s->scale[0] = kv_tile_half(b, KV_PLANE(q5_0, scale));
}
KV_TEMPLATE void kv_unpack_q5_0(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    (void)group, (void)step;
    kv_unpack_nibbles(q, b, KV_PLANE(q5_0, quants), 0);
    kv_unpack_bits(q, b, KV_PLANE(q5_0, high), 16);
}
KV_TEMPLATE kv_tile_format kv_tile_q5_0(void) {
    return (kv_tile_format){.elems = KV_Q5_0_ELEMS,
                            .bytes = sizeof(kv_q5_0_block),
                            .sub_elems = 32,
                            .steps = 1,
                            .max = 31,
                            .offset = 16,
                            .scales = kv_scales_q5_0,
                            .unpack = kv_unpack_q5_0};
}

KV_TEMPLATE void kv_scales_q5_1(kv_tile_scales *s, kv_tile_block b) {
    kv_tile_half_pair(&s->scale[0], &s->min[0], b, KV_PLANE(q5_1, scale));
}
KV_TEMPLATE void kv_unpack_q5_1(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    (void)group, (void)step;
    kv_unpack_nibbles(q, b, KV_PLANE(q5_1, quants), 0);
    kv_unpack_bits(q, b, KV_PLANE(q5_1, high), 16);
}
KV_TEMPLATE kv_tile_format kv_tile_q5_1(void) {
    return (kv_tile_format){.elems = KV_Q5_1_ELEMS,
                            .bytes = sizeof(kv_q5_1_block),
                            .sub_elems = 32,
                            .steps = 1,
                            .max = 31,
                            .has_min = true,
                            .scales = kv_scales_q5_1,
                            .unpack = kv_unpack_q5_1};
}

/* ---- q8_0, iq4_nl */

KV_TEMPLATE void kv_scales_q8_0(kv_tile_scales *s, kv_tile_block b) {
    s->scale[0] = kv_tile_half(b, KV_PLANE(q8_0, scale));
}
KV_TEMPLATE void kv_unpack_q8_0(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    (void)group, (void)step;
    KV_REPEAT(i, KV_QUADS) { q[i] = kv_tile_quad(b, KV_PLANE(q8_0, quants), i); }
}
KV_TEMPLATE kv_tile_format kv_tile_q8_0(void) {
    return (kv_tile_format){.elems = KV_Q8_0_ELEMS,
                            .bytes = sizeof(kv_q8_0_block),
                            .sub_elems = 32,
                            .steps = 1,
                            .is_signed = true,
                            .scales = kv_scales_q8_0,
                            .unpack = kv_unpack_q8_0};
}

KV_TEMPLATE void kv_scales_iq4_nl(kv_tile_scales *s, kv_tile_block b) {
    s->scale[0] = kv_tile_half(b, KV_PLANE(iq4_nl, scale));
}
KV_TEMPLATE void kv_unpack_iq4_nl(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    (void)group, (void)step;
    kv_unpack_levels(q, b, KV_PLANE(iq4_nl, quants), 0);
}
KV_TEMPLATE kv_tile_format kv_tile_iq4_nl(void) {
    return (kv_tile_format){.elems = KV_IQ4_NL_ELEMS,
                            .bytes = sizeof(kv_iq4_nl_block),
                            .sub_elems = 32,
                            .steps = 1,
                            .is_signed = true,
                            .scales = kv_scales_iq4_nl,
                            .unpack = kv_unpack_iq4_nl};
}

/* ---- n3, n4, n6: the shift is a minimum */

/* `start`: what is added to every level. */
KV_TEMPLATE void kv_scales_shifted(kv_tile_scales *s, kv_vec_int heads, float unit, float start) {
    kv_vec shift = kv_vec_from_int(kv_vec_int_and(heads, kv_vec_int_set(15)));
    shift = kv_vec_add(kv_vec_mul(shift, kv_vec_set(unit)), kv_vec_set(start - 7.5f * unit));
    s->scale[0] = kv_vec_from_half_bits(kv_vec_int_and(heads, kv_vec_int_set(0xfff0)));
    s->scale[0] = kv_vec_mul(s->scale[0], kv_vec_set(KV_SHIFT_SCALE));
    s->min[0] = kv_vec_mul(s->scale[0], shift);
}

/* What becomes of signed levels whose sign bit is flipped for the dot product. */
#define KV_SIGNED_START (KV_DOT_SIGNED ? 0.0f : -128.0f)

/* 8 bytes of pairs: element 8 k + j is pair k of byte j; to bit `to` of q. */
KV_TEMPLATE void kv_unpack_pairs(kv_bytes q[], kv_tile_block b, size_t plane, int to) {
    const kv_bytes quads[2] = {kv_tile_quad(b, plane, 0), kv_tile_quad(b, plane, 1)};
    KV_REPEAT(i, KV_QUADS) { q[i] = kv_bytes_move(quads[i % 2], i / 2 * 2, to, 3 << to); }
}

KV_TEMPLATE void kv_scales_n3(kv_tile_scales *s, kv_tile_block b) {
    kv_scales_shifted(s, kv_tile_short(b, KV_PLANE(n3, head)), KV_N3_UNIT, KV_SIGNED_START);
}
KV_TEMPLATE void kv_unpack_n3(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    (void)group, (void)step;
    static const int8_t levels[16] = KV_N3_LEVELS;
    kv_unpack_pairs(q, b, KV_PLANE(n3, low), 0);
    kv_unpack_bits(q, b, KV_PLANE(n3, high), 4);
    KV_REPEAT(i, KV_QUADS) { q[i] = kv_bytes_look_up(levels, q[i]); }
}
KV_TEMPLATE kv_tile_format kv_tile_n3(void) {
    return (kv_tile_format){.elems = KV_N3_ELEMS,
                            .bytes = sizeof(kv_n3_block),
                            .sub_elems = 32,
                            .steps = 1,
                            .is_signed = true,
                            .has_min = true,
                            .scales = kv_scales_n3,
                            .unpack = kv_unpack_n3};
}

KV_TEMPLATE void kv_scales_n4(kv_tile_scales *s, kv_tile_block b) {
    kv_scales_shifted(s, kv_tile_short(b, KV_PLANE(n4, head)), KV_N4_UNIT, KV_SIGNED_START);
}
KV_TEMPLATE void kv_unpack_n4(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    (void)group, (void)step;
    static const int8_t levels[16] = KV_N4_LEVELS;
    kv_unpack_nibbles(q, b, KV_PLANE(n4, quants), 0);
    KV_REPEAT(i, KV_QUADS) { q[i] = kv_bytes_look_up(levels, q[i]); }
}
KV_TEMPLATE kv_tile_format kv_tile_n4(void) {
    return (kv_tile_format){.elems = KV_N4_ELEMS,
                            .bytes = sizeof(kv_n4_block),
                            .sub_elems = 32,
                            .steps = 1,
                            .is_signed = true,
                            .has_min = true,
                            .scales = kv_scales_n4,
                            .unpack = kv_unpack_n4};
}

KV_TEMPLATE void kv_scales_n6(kv_tile_scales *s, kv_tile_block b) {
    kv_scales_shifted(s, kv_tile_short(b, KV_PLANE(n6, head)), KV_N6_UNIT, -31.5f);
}
KV_TEMPLATE void kv_unpack_n6(kv_bytes q[], kv_tile_block b, int32_t group, int32_t step) {
    (void)group, (void)step;
    kv_bytes high[KV_QUADS];
    kv_unpack_nibbles(q, b, KV_PLANE(n6, low), 0);
    kv_unpack_pairs(high, b, KV_PLANE(n6, high), 4);
    KV_REPEAT(i, KV_QUADS) { q[i] = kv_bytes_or(q[i], high[i]); }
}
KV_TEMPLATE kv_tile_format kv_tile_n6(void) {
    return (kv_tile_format){.elems = KV_N6_ELEMS,
                            .bytes = sizeof(kv_n6_block),
                            .sub_elems = 32,
                            .steps = 1,
                            .max = 63,
                            .has_min = true,
                            .scales = kv_scales_n6,
                            .unpack = kv_unpack_n6};
}
