/* accumulate_blocks_vec.h: the formats for accumulate_quad16_vec.h. */
#pragma once

#include "device/cpu/accumulate_quad16_vec.h"
#include "dtype/iq4_nl.h"
#include "dtype/n3.h"
#include "dtype/n4.h"
#include "dtype/n6.h"
#include "dtype/q4_0.h"
#include "dtype/q4_1.h"
#include "dtype/q5_0.h"
#include "dtype/q5_1.h"
#include "dtype/q8_0.h"

/* ---- scales: the first plane of a block */

KV_TEMPLATE void kv_quad_half(kv_vec *scale, kv_vec *min, const uint8_t *block, int32_t first) {
    (void)min;
    *scale = kv_vec_load_half(block + 2 * first);
}

/* A scale and a minimum; the minimum is moved to the middle of the quants. */
KV_TEMPLATE void kv_quad_pair(kv_vec *scale, kv_vec *min, const uint8_t *block, int32_t first, float middle) {
    kv_vec_load_half_pairs(scale, min, block + 4 * first);
    *min = kv_vec_fma(*scale, kv_vec_set(middle), *min);
}

/* The head of dtype/shift.h; `middle` is a level that is not in the quants. */
KV_TEMPLATE void kv_quad_head(kv_vec *scale, kv_vec *min, const uint8_t *block, int32_t first, float unit,
                              float middle) {
    kv_vec_int head = kv_vec_load_u16_n(block + 2 * first, KV_LANES);
    kv_vec shift = kv_vec_from_int(kv_vec_int_and(head, kv_vec_int_set(15)));
    *scale = kv_vec_from_half_bits(kv_vec_int_and(head, kv_vec_int_set(0xfff0)));
    *scale = kv_vec_mul(*scale, kv_vec_set(KV_SHIFT_SCALE));
    *min = kv_vec_mul(*scale, kv_vec_fma(shift, kv_vec_set(unit), kv_vec_set(middle - 7.5f * unit)));
}

/* ---- quants */

/* Numbers `part * KV_LANES` and on of plane `at` whose number of bytes a cell is plane_bytes, for a quad. */
KV_TEMPLATE kv_bytes kv_quad_bytes(const uint8_t *block, size_t plane, size_t plane_bytes, int quad,
                                   int first) {
    return kv_bytes_load(block + plane + (size_t)quad * 4 * plane_bytes + 4 * first);
}

/* 16 bytes of nibbles: the low ones are dimensions 0-15, the high ones 16-31. */
KV_TEMPLATE void kv_quad_nibbles(kv_bytes q[2][4], const uint8_t *block, size_t plane, int32_t part) {
    KV_REPEAT(i, 4) {
        kv_bytes both = kv_quad_bytes(block, plane, 16, i, part * KV_LANES);
        q[0][i] = kv_bytes_and(both, kv_bytes_set(15));
        q[1][i] = kv_bytes_move(both, 4, 0, 15);
    }
}

#define KV_QUAD_BITS                                                                                     \
    1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 32, 64, 64, 64, 64, 128, \
        128, 128, 128

/* Sets the bits `value` of dimension i where bit i of a plane of 32 bits is set. */
KV_TEMPLATE void kv_quad_set_bits(kv_bytes q[2][4], const uint8_t *block, size_t plane, int32_t part,
                                  int value) {
    static const uint8_t bits_of_lanes[64] = {KV_QUAD_BITS, KV_QUAD_BITS};
    const kv_bytes select = kv_bytes_load(bits_of_lanes);
    KV_REPEAT(i, 4) {
        KV_REPEAT(h, 2) {
            kv_bytes bits = kv_bytes_bit_rows(block + plane + 16 * i, 16 * h + part * KV_LANES);
            q[h][i] = kv_bytes_set_if(q[h][i], bits, select, value);
        }
    }
}

/* 8 bytes of pairs of bits: pair k of byte j is dimension 8 k + j. They become bits `to` and `to` + 1. */
KV_TEMPLATE void kv_quad_pairs(kv_bytes q[2][4], const uint8_t *block, size_t plane, int32_t part, int to) {
    KV_REPEAT(i, 4) {
        kv_bytes pairs = kv_bytes_load_half(block + plane + 32 * i);
        KV_REPEAT(h, 2) { q[h][i] = kv_bytes_pairs_of(pairs, 2 * h, part, to); }
    }
}

KV_TEMPLATE void kv_quad_look_up(kv_bytes q[2][4], const int8_t levels[16]) {
    KV_REPEAT(i, 4) {
        KV_REPEAT(h, 2) { q[h][i] = kv_bytes_look_up(levels, q[h][i]); }
    }
}

/* ---- formats */

KV_TEMPLATE void kv_quad_unpack_q8_0(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    KV_REPEAT(i, 4) {
        KV_REPEAT(h, 2) {
            q[h][i] = kv_quad_bytes(block, KV_QUAD_PLANE(q8_0, quants), 32, i, 16 * h + part * KV_LANES);
        }
    }
}
KV_TEMPLATE kv_quad_format kv_quad_q8_0(void) {
    return (kv_quad_format){
        .bytes = sizeof(kv_q8_0_block), .max = 128, .scales = kv_quad_half, .unpack = kv_quad_unpack_q8_0};
}

KV_TEMPLATE void kv_quad_unpack_q4_0(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    kv_quad_nibbles(q, block, KV_QUAD_PLANE(q4_0, quants), part);
}
KV_TEMPLATE kv_quad_format kv_quad_q4_0(void) {
    return (kv_quad_format){.bytes = sizeof(kv_q4_0_block),
                            .max = 16,
                            .offset = 8,
                            .scales = kv_quad_half,
                            .unpack = kv_quad_unpack_q4_0};
}

KV_TEMPLATE void kv_quad_scales_q4_1(kv_vec *scale, kv_vec *min, const uint8_t *block, int32_t first) {
    kv_quad_pair(scale, min, block, first, 8);
}
KV_TEMPLATE void kv_quad_unpack_q4_1(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    kv_quad_nibbles(q, block, KV_QUAD_PLANE(q4_1, quants), part);
}
KV_TEMPLATE kv_quad_format kv_quad_q4_1(void) {
    return (kv_quad_format){.bytes = sizeof(kv_q4_1_block),
                            .max = 16,
                            .offset = 8,
                            .has_min = true,
                            .scales = kv_quad_scales_q4_1,
                            .unpack = kv_quad_unpack_q4_1};
}

KV_TEMPLATE void kv_quad_unpack_q5_0(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    kv_quad_nibbles(q, block, KV_QUAD_PLANE(q5_0, quants), part);
    kv_quad_set_bits(q, block, KV_QUAD_PLANE(q5_0, high), part, 16);
}
KV_TEMPLATE kv_quad_format kv_quad_q5_0(void) {
    return (kv_quad_format){.bytes = sizeof(kv_q5_0_block),
                            .max = 32,
                            .offset = 16,
                            .scales = kv_quad_half,
                            .unpack = kv_quad_unpack_q5_0};
}

KV_TEMPLATE void kv_quad_scales_q5_1(kv_vec *scale, kv_vec *min, const uint8_t *block, int32_t first) {
    kv_quad_pair(scale, min, block, first, 16);
}
KV_TEMPLATE void kv_quad_unpack_q5_1(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    kv_quad_nibbles(q, block, KV_QUAD_PLANE(q5_1, quants), part);
    kv_quad_set_bits(q, block, KV_QUAD_PLANE(q5_1, high), part, 16);
}
KV_TEMPLATE kv_quad_format kv_quad_q5_1(void) {
    return (kv_quad_format){.bytes = sizeof(kv_q5_1_block),
                            .max = 32,
                            .offset = 16,
                            .has_min = true,
                            .scales = kv_quad_scales_q5_1,
                            .unpack = kv_quad_unpack_q5_1};
}

KV_TEMPLATE void kv_quad_unpack_iq4_nl(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    static const int8_t levels[16] = KV_IQ4_LEVELS;
    kv_quad_nibbles(q, block, KV_QUAD_PLANE(iq4_nl, quants), part);
    kv_quad_look_up(q, levels);
}
KV_TEMPLATE kv_quad_format kv_quad_iq4_nl(void) {
    return (kv_quad_format){.bytes = sizeof(kv_iq4_nl_block),
                            .max = 128,
                            .scales = kv_quad_half,
                            .unpack = kv_quad_unpack_iq4_nl};
}

/* ---- n3, n4, n6 */

KV_TEMPLATE void kv_quad_scales_n3(kv_vec *scale, kv_vec *min, const uint8_t *block, int32_t first) {
    kv_quad_head(scale, min, block, first, KV_N3_UNIT, 0);
}
KV_TEMPLATE void kv_quad_unpack_n3(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    static const int8_t levels[16] = KV_N3_LEVELS;
    kv_quad_pairs(q, block, KV_QUAD_PLANE(n3, low), part, 0);
    kv_quad_set_bits(q, block, KV_QUAD_PLANE(n3, high), part, 4);
    kv_quad_look_up(q, levels);
}
KV_TEMPLATE kv_quad_format kv_quad_n3(void) {
    return (kv_quad_format){.bytes = sizeof(kv_n3_block),
                            .max = 128,
                            .has_min = true,
                            .scales = kv_quad_scales_n3,
                            .unpack = kv_quad_unpack_n3};
}

KV_TEMPLATE void kv_quad_scales_n4(kv_vec *scale, kv_vec *min, const uint8_t *block, int32_t first) {
    kv_quad_head(scale, min, block, first, KV_N4_UNIT, 0);
}
KV_TEMPLATE void kv_quad_unpack_n4(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    static const int8_t levels[16] = KV_N4_LEVELS;
    kv_quad_nibbles(q, block, KV_QUAD_PLANE(n4, quants), part);
    kv_quad_look_up(q, levels);
}
KV_TEMPLATE kv_quad_format kv_quad_n4(void) {
    return (kv_quad_format){.bytes = sizeof(kv_n4_block),
                            .max = 128,
                            .has_min = true,
                            .scales = kv_quad_scales_n4,
                            .unpack = kv_quad_unpack_n4};
}

/* q - 31.5 = (q - 32) + 0.5 */
KV_TEMPLATE void kv_quad_scales_n6(kv_vec *scale, kv_vec *min, const uint8_t *block, int32_t first) {
    kv_quad_head(scale, min, block, first, KV_N6_UNIT, 0.5f);
}
KV_TEMPLATE void kv_quad_unpack_n6(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    kv_bytes low[2][4];
    kv_quad_nibbles(low, block, KV_QUAD_PLANE(n6, low), part);
    kv_quad_pairs(q, block, KV_QUAD_PLANE(n6, high), part, 4);
    KV_REPEAT(i, 4) {
        KV_REPEAT(h, 2) { q[h][i] = kv_bytes_or(q[h][i], low[h][i]); }
    }
}
KV_TEMPLATE kv_quad_format kv_quad_n6(void) {
    return (kv_quad_format){.bytes = sizeof(kv_n6_block),
                            .max = 64,
                            .offset = 32,
                            .has_min = true,
                            .scales = kv_quad_scales_n6,
                            .unpack = kv_quad_unpack_n6};
}
