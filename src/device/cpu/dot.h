/* dot.h: vectors of bytes and their dot products, beside vec.h. A kv_bytes holds 4 bytes for each of KV_LANES
 * rows of a tile16x4: what a matmul kernel unpacks its weights to, and multiplies by 4 activations at a time.
 */
#pragma once

#include "device/cpu/vec.h"

#if defined(__AVX512F__)
#include "device/cpu/dot_avx512.h"
#elif defined(__AVX2__)
#include "device/cpu/dot_avx2.h"
#endif

/* Bits `mask` of every byte after bit `from` has moved to bit `to`. */
static inline kv_bytes kv_bytes_move(kv_bytes v, int from, int to, int mask) {
    kv_bytes moved = from >= to ? kv_bytes_shift_right(v, from - to) : kv_bytes_shift_left(v, to - from);
    return kv_bytes_and(moved, kv_bytes_set(mask));
}

/* Byte i of every lane as a number from 0 to 255. */
static inline kv_vec_int kv_bytes_lane(kv_bytes v, int i) {
    return kv_vec_int_and(kv_vec_int_shift_right(v, 8 * i), kv_vec_int_set(255));
}
