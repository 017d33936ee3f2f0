/* accumulate_blocks_vec.h: the formats for accumulate_quad16_vec.h. */
#pragma once

#include "device/cpu/accumulate_quad16_vec.h"
#include "dtype/iq4_nl.h"
#include "dtype/q4_0.h"
#include "dtype/q4_1.h"
#include "dtype/q5_0.h"
#include "dtype/q5_1.h"
#include "dtype/q8_0.h"

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

/* Adds 16 to dimension i where bit i of a plane of 32 bits is set. */
KV_TEMPLATE void kv_quad_fifth_bits(kv_bytes q[2][4], const uint8_t *block, size_t plane, int32_t part) {
    static const uint8_t bits_of_lanes[64] = {KV_QUAD_BITS, KV_QUAD_BITS};
    const kv_bytes select = kv_bytes_load(bits_of_lanes);
    KV_REPEAT(i, 4) {
        KV_REPEAT(h, 2) {
            kv_bytes bits = kv_bytes_bit_rows(block + plane + 16 * i, 16 * h + part * KV_LANES);
            q[h][i] = kv_bytes_set_if(q[h][i], bits, select, 16);
        }
    }
}

KV_TEMPLATE void kv_quad_unpack_q8_0(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    KV_REPEAT(i, 4) {
        KV_REPEAT(h, 2) {
            q[h][i] = kv_quad_bytes(block, KV_QUAD_PLANE(q8_0, quants), 32, i, 16 * h + part * KV_LANES);
        }
    }
}
KV_TEMPLATE kv_quad_format kv_quad_q8_0(void) {
    return (kv_quad_format){.bytes = sizeof(kv_q8_0_block), .max = 128, .unpack = kv_quad_unpack_q8_0};
}

KV_TEMPLATE void kv_quad_unpack_q4_0(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    kv_quad_nibbles(q, block, KV_QUAD_PLANE(q4_0, quants), part);
}
KV_TEMPLATE kv_quad_format kv_quad_q4_0(void) {
    return (kv_quad_format){
        .bytes = sizeof(kv_q4_0_block), .max = 16, .offset = 8, .unpack = kv_quad_unpack_q4_0};
}

KV_TEMPLATE void kv_quad_unpack_q4_1(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    kv_quad_nibbles(q, block, KV_QUAD_PLANE(q4_1, quants), part);
}
KV_TEMPLATE kv_quad_format kv_quad_q4_1(void) {
    return (kv_quad_format){
        .bytes = sizeof(kv_q4_1_block), .max = 16, .has_min = true, .unpack = kv_quad_unpack_q4_1};
}

KV_TEMPLATE void kv_quad_unpack_q5_0(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    kv_quad_nibbles(q, block, KV_QUAD_PLANE(q5_0, quants), part);
    kv_quad_fifth_bits(q, block, KV_QUAD_PLANE(q5_0, high), part);
}
KV_TEMPLATE kv_quad_format kv_quad_q5_0(void) {
    return (kv_quad_format){
        .bytes = sizeof(kv_q5_0_block), .max = 32, .offset = 16, .unpack = kv_quad_unpack_q5_0};
}

KV_TEMPLATE void kv_quad_unpack_q5_1(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    kv_quad_nibbles(q, block, KV_QUAD_PLANE(q5_1, quants), part);
    kv_quad_fifth_bits(q, block, KV_QUAD_PLANE(q5_1, high), part);
}
KV_TEMPLATE kv_quad_format kv_quad_q5_1(void) {
    return (kv_quad_format){
        .bytes = sizeof(kv_q5_1_block), .max = 32, .has_min = true, .unpack = kv_quad_unpack_q5_1};
}

KV_TEMPLATE void kv_quad_unpack_iq4_nl(kv_bytes q[2][4], const uint8_t *block, int32_t part) {
    static const int8_t levels[16] = KV_IQ4_LEVELS;
    kv_quad_nibbles(q, block, KV_QUAD_PLANE(iq4_nl, quants), part);
    KV_REPEAT(i, 4) {
        KV_REPEAT(h, 2) { q[h][i] = kv_bytes_look_up(levels, q[h][i]); }
    }
}
KV_TEMPLATE kv_quad_format kv_quad_iq4_nl(void) {
    return (kv_quad_format){.bytes = sizeof(kv_iq4_nl_block), .max = 128, .unpack = kv_quad_unpack_iq4_nl};
}
