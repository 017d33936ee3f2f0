/* shift.h: a scale and a shift in 16 bits, for the formats n3, n4 and n6: an f16 whose four low bits are not
 * part of the scale but name the shift.
 *
 *     15   14 .. 10    9 .. 4    3 .. 0
 *      0   exponent   mantissa   s          x = scale * (level + unit * (s - 7.5))
 *
 * A block of 32 numbers has extremes of different size. Six bits of mantissa are plenty for a scale that is
 * searched for; the four others move the levels to the middle of the block, which lowers the squared error of
 * normal numbers by a quarter. */
#pragma once

#include "base/half.h"

enum { KV_SHIFTS = 16 };

static inline float kv_shift_scale(uint16_t head) { return kv_f16_to_f32((uint16_t)(head & 0xfff0u)); }

/* In multiples of `unit`. */
static inline float kv_shift_of(uint16_t head) { return (float)(head & 15) - 7.5f; }
