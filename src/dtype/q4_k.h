/* q4_k.h: the block of the q4_k dtype and the packed scales that q5_k has too, shared with the kernels that
 * read them. */
#pragma once

#include <stdint.h>

enum { KV_Q4_K_ELEMS = 256, KV_Q4_K_SUBS = 8 };

/* Eight sub-blocks of 32: x[i] = scale * s[i / 32] * q[i] - min * m[i / 32]. With i = 64 c + l (c < 4, l <
 * 64), q[i] is the low nibble of quants[32 c + l] for l < 32, the high nibble of quants[32 c + l - 32] else.
 */
typedef struct __attribute__((packed)) kv_q4_k_block {
    uint16_t scale, min; /* f16 */
    uint8_t scales[12];  /* see kv_q4_k_scales */
    uint8_t quants[KV_Q4_K_ELEMS / 2];
} kv_q4_k_block;

/* Eight scales s and minima m of 6 bits, j < 4:
 *   bytes 0..3    s[j] and, above it, the two high bits of s[j + 4]
 *   bytes 4..7    m[j] and, above it, the two high bits of m[j + 4]
 *   bytes 8..11   low nibbles of s[j + 4] and, above it, of m[j + 4] */
static inline void kv_q4_k_scales(uint8_t s[KV_Q4_K_SUBS], uint8_t m[KV_Q4_K_SUBS],
                                  const uint8_t packed[12]) {
    for (int j = 0; j < 4; j++) {
        s[j] = packed[j] & 63;
        m[j] = packed[j + 4] & 63;
        s[j + 4] = (uint8_t)((packed[j + 8] & 15) | packed[j] >> 6 << 4);
        m[j + 4] = (uint8_t)(packed[j + 8] >> 4 | packed[j + 4] >> 6 << 4);
    }
}

static inline void kv_q4_k_pack_scales(uint8_t packed[12], const int8_t s[KV_Q4_K_SUBS],
                                       const int8_t m[KV_Q4_K_SUBS]) {
    for (int j = 0; j < 4; j++) {
        packed[j] = (uint8_t)(s[j] | s[j + 4] >> 4 << 6);
        packed[j + 4] = (uint8_t)(m[j] | m[j + 4] >> 4 << 6);
        packed[j + 8] = (uint8_t)((s[j + 4] & 15) | (m[j + 4] & 15) << 4);
    }
}
