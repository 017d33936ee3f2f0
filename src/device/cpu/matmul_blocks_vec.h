/* matmul_blocks_vec.h: the formats with blocks of 32 for matmul_vec.h. */
#pragma once

#include "device/cpu/matmul_unpack_vec.h"
#include "dtype/iq4_nl.h"
#include "dtype/q4_0.h"
#include "dtype/q4_1.h"
#include "dtype/q5_0.h"
#include "dtype/q5_1.h"
#include "dtype/q8_0.h"

/* Adds 16 to element i where bit i of the plane is set. */
KV_TEMPLATE void kv_unpack_fifth_bits(kv_bytes q[], kv_tile_block b, size_t plane) {
    const kv_bytes select[2] = {kv_bytes_set4((const int8_t[]){1, 2, 4, 8}),
                                kv_bytes_set4((const int8_t[]){16, 32, 64, -128})};
    kv_bytes bits = kv_tile_quad(b, plane, 0);
    KV_REPEAT(i, KV_QUADS) { q[i] = kv_bytes_set_if(q[i], kv_bytes_spread(bits, i / 2), select[i % 2], 16); }
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
    kv_unpack_fifth_bits(q, b, KV_PLANE(q5_0, high));
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
    kv_unpack_fifth_bits(q, b, KV_PLANE(q5_1, high));
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
