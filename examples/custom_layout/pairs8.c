/* pairs8.c: a memory layout for the KV cache, described to kvant from outside: two cells lie together and
 * take turns of 8 bytes. Of q8_0 (blocks of 32 numbers: a scale of 2 bytes, 32 quants of 1 byte) a block of a
 * pair is
 *
 *     byte  0  [scale of cell 0][scale of cell 1]
 *           4  [quants 0-7 of cell 0][quants 0-7 of cell 1]
 *          20  [quants 8-15 of cell 0][quants 8-15 of cell 1]
 *          36  ... up to 68
 *
 * The four numbers in `kvant_layout` at the end are all that kvant needs. The kernels are a choice: they read
 * q8_0 where it lies; without them kvant decodes the cells first. Compiled as a shared object, this file is
 * what `kvant check-layout` tests and times. */
#include <kvant_ext.h>

#include <string.h>

enum { PAIR = 2, TURN = 8, BLOCK = 32, PAIR_BYTES = PAIR * (2 + BLOCK) };

/* A 16-bit float as the scale is: sign, 5 bits of exponent, 10 of fraction. */
static float half_to_float(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
    uint32_t exponent = half >> 10 & 31, fraction = half & 1023, sign = (uint32_t)(half >> 15) << 31;
    if (exponent == 0) { /* zero, or steps of 2^-24 */
        float small = (float)fraction * 0x1p-24f;
        return sign ? -small : small;
    }
    uint32_t bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The 32 numbers of both cells of a pair. */
static void read_pair(float x[PAIR][BLOCK], const uint8_t *block) {
    for (int cell = 0; cell < PAIR; cell++) {
        float scale = half_to_float(block + 2 * cell);
        const int8_t *quants = (const int8_t *)block + 2 * PAIR + cell * TURN;
        for (int i = 0; i < BLOCK; i++) x[cell][i] = scale * (float)quants[i / TURN * PAIR * TURN + i % TURN];
    }
}

static const uint8_t *pair_at(const void *cells, size_t tile_bytes, int32_t cell, int32_t dim) {
    return (const uint8_t *)cells + (size_t)(cell / PAIR) * tile_bytes + (size_t)(dim / BLOCK) * PAIR_BYTES;
}

static void score_q8_0(const kvant_score_args *a) {
    for (int32_t i = 0; i < a->n_queries; i++)
        memset(a->scores + (size_t)i * a->scores_step, 0, (size_t)a->n_cells * sizeof(float));
    for (int32_t c = 0; c < a->n_cells; c += PAIR)
        for (int32_t d = 0; d < a->head_dim; d += BLOCK) {
            float x[PAIR][BLOCK];
            read_pair(x, pair_at(a->keys, a->tile_bytes, c, d));
            for (int32_t i = 0; i < a->n_queries; i++) {
                const float *q = a->queries + (size_t)i * (size_t)a->head_dim + d;
                float sums[PAIR] = {0};
                for (int j = 0; j < BLOCK; j++) {
                    sums[0] += q[j] * x[0][j];
                    sums[1] += q[j] * x[1][j];
                }
                a->scores[(size_t)i * a->scores_step + (size_t)c] += sums[0];
                a->scores[(size_t)i * a->scores_step + (size_t)c + 1] += sums[1];
            }
        }
}

static void accumulate_q8_0(const kvant_accumulate_args *a) {
    for (int32_t c = 0; c < a->n_cells; c += PAIR)
        for (int32_t d = 0; d < a->head_dim; d += BLOCK) {
            float x[PAIR][BLOCK];
            read_pair(x, pair_at(a->values, a->tile_bytes, c, d));
            for (int32_t i = 0; i < a->n_queries; i++) {
                float *sums = a->sums + (size_t)i * (size_t)a->head_dim + d;
                for (int cell = 0; cell < PAIR; cell++) {
                    float weight = a->weights[(size_t)i * a->weights_step + (size_t)(c + cell)];
                    if (weight == 0) continue; /* the cell may hold anything, and 0 times NaN is NaN */
                    for (int j = 0; j < BLOCK; j++) sums[j] += weight * x[cell][j];
                }
            }
        }
}

static const kvant_layout_kernel kernels[] = {
    {sizeof(kvant_layout_kernel), "q8_0", score_q8_0, accumulate_q8_0},
};

KVANT_API const kvant_layout_desc kvant_layout = {
    .size = sizeof(kvant_layout_desc),
    .version = KVANT_EXT_VERSION,
    .name = "pairs8",
    .tile = PAIR,
    .group = PAIR,
    .chunk = TURN,
    .kernels = kernels,
    .n_kernels = sizeof kernels / sizeof *kernels,
};
