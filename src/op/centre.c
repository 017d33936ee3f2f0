/* centre.c: tables and means of centred keys. Angles in double. */
#include "op/centre.h"

#include <math.h>

static void fill_pair(float *tile_column, double frequency, float magnitude, const float mean[2],
                      int32_t first_cell) {
    for (int32_t lane = 0; lane < KV_CENTRE_LANES; lane++) {
        double angle = (first_cell + lane) * frequency, x = (double)mean[0], y = (double)mean[1];
        tile_column[lane] = magnitude * (float)(x * cos(angle) - y * sin(angle));
        tile_column[KV_CENTRE_LANES + lane] = magnitude * (float)(y * cos(angle) + x * sin(angle));
    }
}

void kv_centre_fill_table(float *table, const kv_centre *c, int32_t n_heads, const kv_rope *rope) {
    for (int32_t head = 0; head < n_heads; head++)
        for (int32_t cell = 0; cell < KV_CENTRE_CELLS; cell += KV_CENTRE_LANES)
            for (int32_t i = 0; i < c->n_pairs; i++, table += 2 * KV_CENTRE_LANES) {
                int32_t at = head * c->n_pairs + i;
                fill_pair(table, rope->freq[c->pairs[at]], rope->magnitude, c->mean + 2 * at, cell);
            }
}

void kv_centre_add(float *keys, const kv_centre *c, int32_t n_heads, int32_t dim, const kv_rope *rope,
                   float sign) {
    for (int32_t head = 0; head < n_heads; head++, keys += dim)
        for (int32_t i = 0; i < c->n_pairs; i++) {
            int32_t at = head * c->n_pairs + i;
            keys[kv_rope_first(rope, c->pairs[at])] += sign * c->mean[2 * at];
            keys[kv_rope_second(rope, c->pairs[at])] += sign * c->mean[2 * at + 1];
        }
}
