/* half.h: IEEE binary16 and bfloat16 to and from binary32, bit by bit, round to nearest even. The scalar
 * truth; kernels use the machine's instructions. */
#pragma once

#include <stdint.h>
#include <string.h>

static inline float kv_f32_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t kv_f32_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float kv_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
    if (exponent == 31) return kv_f32_from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return kv_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float subnormal = (float)mantissa * 0x1p-24f;
    return kv_f32_from_bits(sign | kv_f32_bits(subnormal));
}

static inline uint16_t kv_f16_from_f32(float x) {
    uint32_t bits = kv_f32_bits(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest >= 0x7f800000u) /* Inf, or NaN made quiet */
        return (uint16_t)(sign | 0x7c00u | (rest > 0x7f800000u ? 0x200u | (rest >> 13 & 0x3ffu) : 0));
    if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to Inf */
    if (rest < 0x38800000u) {                                   /* subnormal */
        float magic = kv_f32_from_bits(rest) + 0.5f;            /* the FPU rounds at 2^-24 for us */
        return (uint16_t)(sign | (kv_f32_bits(magic) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((rest + 0xfffu + (rest >> 13 & 1u) - 0x38000000u) >> 13));
}

static inline float kv_bf16_to_f32(uint16_t h) { return kv_f32_from_bits((uint32_t)h << 16); }

static inline uint16_t kv_bf16_from_f32(float x) {
    uint32_t bits = kv_f32_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 64u); /* quiet NaN */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
