/* vec_dtype.h: numbers of a row of some dtype as a vector, bit for bit what the scalar decode gives. Kernels
 * take one of these as a parameter. `at` is a multiple of KV_LANES; `n` < KV_LANES only where blocks are
 * single numbers. */
#pragma once

#include "device/cpu/vec.h"
#include "dtype/iq4_nl.h"
#include "dtype/n3.h"
#include "dtype/n4.h"
#include "dtype/n6.h"
#include "dtype/q4_0.h"
#include "dtype/q4_1.h"
#include "dtype/q5_0.h"
#include "dtype/q5_1.h"
#include "dtype/q8_0.h"

typedef kv_vec kv_vec_row_fn(const void *row, int32_t at, int32_t n);

static inline kv_vec kv_vec_row_f32(const void *row, int32_t at, int32_t n) {
    const float *p = (const float *)row + at;
    return n == KV_LANES ? kv_vec_load(p) : kv_vec_load_n(p, n);
}

static inline kv_vec kv_vec_row_f16(const void *row, int32_t at, int32_t n) {
    const uint16_t *p = (const uint16_t *)row + at;
    return n == KV_LANES ? kv_vec_load_half(p) : kv_vec_load_half_n(p, n);
}

static inline kv_vec kv_vec_row_bf16(const void *row, int32_t at, int32_t n) {
    return kv_vec_from_bits(kv_vec_int_shift_left(kv_vec_load_u16_n((const uint16_t *)row + at, n), 16));
}

static inline kv_vec kv_vec_row_q8_0(const void *row, int32_t at, int32_t n) {
    (void)n;
    const kv_q8_0_block *block = (const kv_q8_0_block *)row + at / KV_Q8_0_ELEMS;
    kv_vec quants = kv_vec_from_int(kv_vec_load_i8(block->quants + at % KV_Q8_0_ELEMS));
    return kv_vec_mul(kv_vec_set_half(block->scale), quants);
}

/* KV_LANES quants from `at` on of a block of 32: 16 bytes with the first half in the low nibbles. */
static inline kv_vec_int kv_vec_nibbles(const uint8_t quants[16], int32_t at) {
    kv_vec_int bytes = kv_vec_load_u8(quants + at % 16);
    return at < 16 ? kv_vec_int_and(bytes, kv_vec_int_set(15)) : kv_vec_int_shift_right(bytes, 4);
}

static inline kv_vec kv_vec_row_q4_0(const void *row, int32_t at, int32_t n) {
    (void)n;
    const kv_q4_0_block *block = (const kv_q4_0_block *)row + at / KV_Q4_0_ELEMS;
    kv_vec_int quants = kv_vec_nibbles(block->quants, at % KV_Q4_0_ELEMS);
    kv_vec level = kv_vec_from_int(kv_vec_int_sub(quants, kv_vec_int_set(8)));
    return kv_vec_mul(kv_vec_set_half(block->scale), level);
}

static inline kv_vec kv_vec_row_q4_1(const void *row, int32_t at, int32_t n) {
    (void)n;
    const kv_q4_1_block *block = (const kv_q4_1_block *)row + at / KV_Q4_1_ELEMS;
    kv_vec quants = kv_vec_from_int(kv_vec_nibbles(block->quants, at % KV_Q4_1_ELEMS));
    return kv_vec_add(kv_vec_mul(kv_vec_set_half(block->scale), quants), kv_vec_set_half(block->min));
}

/* As kv_vec_nibbles, with a fifth bit for each number from the 32 of `high`. */
static inline kv_vec_int kv_vec_fives(const uint8_t quants[16], uint32_t high, int32_t at) {
    kv_vec_int fifth = kv_vec_int_from_bits(high >> at);
    return kv_vec_int_or(kv_vec_nibbles(quants, at), kv_vec_int_shift_left(fifth, 4));
}

static inline kv_vec kv_vec_row_q5_0(const void *row, int32_t at, int32_t n) {
    (void)n;
    const kv_q5_0_block *block = (const kv_q5_0_block *)row + at / KV_Q5_0_ELEMS;
    kv_vec_int quants = kv_vec_fives(block->quants, block->high, at % KV_Q5_0_ELEMS);
    kv_vec level = kv_vec_from_int(kv_vec_int_sub(quants, kv_vec_int_set(16)));
    return kv_vec_mul(kv_vec_set_half(block->scale), level);
}

static inline kv_vec kv_vec_row_q5_1(const void *row, int32_t at, int32_t n) {
    (void)n;
    const kv_q5_1_block *block = (const kv_q5_1_block *)row + at / KV_Q5_1_ELEMS;
    kv_vec quants = kv_vec_from_int(kv_vec_fives(block->quants, block->high, at % KV_Q5_1_ELEMS));
    return kv_vec_add(kv_vec_mul(kv_vec_set_half(block->scale), quants), kv_vec_set_half(block->min));
}

/* ---- levels from a list */

static inline kv_vec kv_vec_row_iq4_nl(const void *row, int32_t at, int32_t n) {
    (void)n;
    static const float levels[16] = KV_IQ4_LEVELS;
    const kv_iq4_nl_block *block = (const kv_iq4_nl_block *)row + at / KV_IQ4_NL_ELEMS;
    kv_vec level = kv_vec_look_up(levels, kv_vec_nibbles(block->quants, at % KV_IQ4_NL_ELEMS));
    return kv_vec_mul(kv_vec_set_half(block->scale), level);
}

/* scale * (level + shift), both from the head of a block (dtype/shift.h). */
static inline kv_vec kv_vec_shifted(kv_vec level, uint16_t head, float unit, float start) {
    kv_vec shift = kv_vec_set(unit * kv_shift_of(head) + start);
    kv_vec scale = kv_vec_mul(kv_vec_set_half(head & 0xfff0u), kv_vec_set(KV_SHIFT_SCALE));
    return kv_vec_mul(scale, kv_vec_add(level, shift));
}

static inline kv_vec kv_vec_row_n3(const void *row, int32_t at, int32_t n) {
    (void)n;
    static const float levels[16] = KV_N3_LEVELS;
    const kv_n3_block *block = (const kv_n3_block *)row + at / KV_N3_ELEMS;
    kv_vec_int low = kv_vec_load_pairs(block->low, at % KV_N3_ELEMS / 8);
    kv_vec_int third = kv_vec_int_from_bits(block->high >> at % KV_N3_ELEMS);
    kv_vec level = kv_vec_look_up(levels, kv_vec_int_or(low, kv_vec_int_shift_left(third, 2)));
    return kv_vec_shifted(level, block->head, KV_N3_UNIT, 0);
}

static inline kv_vec kv_vec_row_n4(const void *row, int32_t at, int32_t n) {
    (void)n;
    static const float levels[16] = KV_N4_LEVELS;
    const kv_n4_block *block = (const kv_n4_block *)row + at / KV_N4_ELEMS;
    kv_vec level = kv_vec_look_up(levels, kv_vec_nibbles(block->quants, at % KV_N4_ELEMS));
    return kv_vec_shifted(level, block->head, KV_N4_UNIT, 0);
}

static inline kv_vec kv_vec_row_n6(const void *row, int32_t at, int32_t n) {
    (void)n;
    const kv_n6_block *block = (const kv_n6_block *)row + at / KV_N6_ELEMS;
    kv_vec_int high = kv_vec_load_pairs(block->high, at % KV_N6_ELEMS / 8);
    kv_vec_int low = kv_vec_nibbles(block->low, at % KV_N6_ELEMS);
    kv_vec quants = kv_vec_from_int(kv_vec_int_or(low, kv_vec_int_shift_left(high, 4)));
    return kv_vec_shifted(quants, block->head, KV_N6_UNIT, -31.5f);
}
