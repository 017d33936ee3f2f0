/* shift.h: a scale and a shift in 16 bits, for the formats n3, n4 and n6: an f16 whose four low bits are not
 * part of the scale but name the shift.
 *
 *     15   14 .. 10    9 .. 4    3 .. 0
 *      0   exponent   mantissa   s          x = f16 / 16 * (level + unit * (s - 7.5))
 *
 * A block of 32 numbers has extremes of different size. Six bits of mantissa are plenty for a scale that is
 * searched for; the four others move the levels to the middle of the block, which lowers the squared error of
 * normal numbers by a quarter. A sixteenth, because levels go up to 127: scales of small numbers would be
 * subnormal. */
#pragma once

#include "base/half.h"

#define KV_SHIFT_SCALE 0x1p-4f

static inline float kv_shift_scale(uint16_t head) {
    return KV_SHIFT_SCALE * kv_f16_to_f32((uint16_t)(head & 0xfff0u));
}

/* In multiples of `unit`. */
static inline float kv_shift_of(uint16_t head) { return (float)(head & 15) - 7.5f; }
