/* fuzz_cache.c: any bytes as operations on the sequences of a KV cache, six bytes each, with memory that runs
 * out where they say so, with and without a group of layers that see a window; after each one the whole cache
 * is compared with a dumb model of it (cache_model.h). */
#include "cache_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int32_t sizes[] = {1, 7, 64, 96, 100, 140, 200, 256};
    static const model_window windows[] = {{0, 0, 0}, {3, 2, 1}, {1, 0, 0}, {4, 3, 2}};
    cache_model m;
    model_op op;
    if (!size) return 0;
    model_require(!model_open_windowed(&m, sizes[data[0] % 8], windows[data[0] / 8 % 4], true));
    for (size_t at = 1; at + sizeof op <= size; at += sizeof op) {
        memcpy(&op, data + at, sizeof op);
        op.fails = op.fails < 240 ? 0 : op.fails - 239; /* mostly memory is there */
        model_step(&m, &op);
    }
    model_close(&m);
    return 0;
}
