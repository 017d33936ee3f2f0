/* matmul_unpack_vec.h: steps of unpacking that formats of matmul_vec.h share. */
#pragma once

#include "device/cpu/matmul_vec.h"
#include "dtype/iq4_nl.h"

/* 16 bytes of nibbles from turn `first` of a plane on: the low ones are elements 0-15, the high ones 16-31.
 */
KV_TEMPLATE void kv_unpack_nibbles(kv_bytes q[], kv_tile_block b, size_t plane, int32_t first) {
    KV_REPEAT(i, 4) {
        kv_bytes quad = kv_tile_quad(b, plane, first + i);
        q[i] = kv_bytes_and(quad, kv_bytes_set(15));
        q[i + 4] = kv_bytes_move(quad, 4, 0, 15);
    }
}

/* The same through the levels of iq4. */
KV_TEMPLATE void kv_unpack_levels(kv_bytes q[], kv_tile_block b, size_t plane, int32_t first) {
    static const int8_t levels[16] = KV_IQ4_LEVELS;
    kv_unpack_nibbles(q, b, plane, first);
    KV_REPEAT(i, KV_QUADS) { q[i] = kv_bytes_look_up(levels, q[i]); }
}
