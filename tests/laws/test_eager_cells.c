/* Laws of keys rotated in place, on stores without a model: for every type that a cache can have, in every
 * layout, at every usual head size and number of KV heads, what the CPU device leaves in a cell is what
 * decoding, rotating and coding leaves, byte for byte; other cells and all values keep their bytes; a
 * rotation costs no more than coding once more.
 *
 * ctest: single */
#include "base/cpu.h"
#include "base/memory.h"
#include "base/random.h"
#include "device/cpu/cpu_device.h"
#include "op/cache_move.h"
#include "op/cache_shift.h"
#include "sched/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N_CELLS = 36, N_TURNED = 14, MAX_DIM = 256, MAX_HEADS = 8 };

static const int32_t dims[] = {32, 64, 80, 96, 128, 256};
static const int32_t head_counts[] = {1, 2, 3, 8};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static kv_device *device;

static int open_device(void **state) {
    unsigned flags;
    (void)state;
    return kv_cpu_mask(&flags, NULL) || kv_cpu_device_create(&device, 0, 2, flags) ? -1 : 0;
}

static int close_device(void **state) {
    (void)state;
    device->destroy(device);
    return 0;
}

/* ---- a store with random keys and values */

typedef struct fixture {
    kv_store store;
    kv_buffer k, v;
    kv_rope rope;
    double freq[MAX_DIM / 2];
    kv_random random;
    int32_t cells[N_TURNED];
    int64_t deltas[N_TURNED];
    kv_cell_turns turns;
} fixture;

static void fill(fixture *f, const kv_tensor *t) {
    float row[MAX_HEADS * (MAX_DIM + 32)];
    uint8_t plain[sizeof row];
    for (int32_t c = 0; c < N_CELLS; c++) {
        for (int64_t i = 0; i < t->cols; i++) row[i] = kv_random_normal(&f->random);
        kv_dtype_encode_close(t->dtype, plain, row, t->cols);
        kv_layout_pack(t->layout, t->dtype, t->cols, kv_tensor_data(t), plain, c, 1);
    }
}

static void make_tensor(kv_tensor *t, kv_buffer *b, const kv_dtype *d, const kv_layout *l, int64_t cols) {
    *t = (kv_tensor){.dtype = d, .layout = l, .rows = N_CELLS, .cols = cols, .buffer = b};
    assert_int_equal(device->alloc(device, b, kv_tensor_bytes(t)), KVANT_OK);
}

typedef struct shape {
    const kv_dtype *dtype;
    const kv_layout *layout;
    int32_t dim, n_heads, n_rot;
    bool rotated;
    float magnitude;
} shape;

static void open_fixture(fixture *f, const shape *s) {
    *f = (fixture){.store = {.n_kv_heads = s->n_heads}};
    kv_random_init(&f->random, (uint64_t)(s->dim * 100 + s->n_heads));
    f->store.k_head = f->store.v_head = kv_head_code_of(s->dtype, s->dim, s->rotated);
    int64_t cols = (int64_t)s->n_heads * f->store.k_head.width;
    make_tensor(&f->store.k, &f->k, s->dtype, s->layout, cols);
    make_tensor(&f->store.v, &f->v, s->dtype, s->layout, cols);
    fill(f, &f->store.k);
    fill(f, &f->store.v);
    kv_rope_spec spec = {.n_rot = s->n_rot, .base = 10000, .linear = 1};
    kv_rope_frequencies(f->freq, &spec);
    f->rope = (kv_rope){s->n_rot, s->n_heads % 2 ? KV_ROPE_HALVES : KV_ROPE_ADJACENT, s->magnitude, f->freq};
    for (int32_t i = 0; i < N_TURNED; i++) {
        f->cells[i] = (5 * i + 3) % N_CELLS; /* 5 and 36 have no common divisor */
        f->deltas[i] = i < 7 ? -1000 : 17 * i + 1;
    }
    f->turns = (kv_cell_turns){N_TURNED, f->cells, f->deltas};
}

static void close_fixture(fixture *f) {
    device->release(&f->k);
    device->release(&f->v);
}

static void run(kv_graph *g) {
    kv_plan *plan = NULL;
    atomic_bool cancel = false;
    assert_int_equal(kv_plan_create(&plan, g, &device, 1), KVANT_OK);
    assert_int_equal(kv_plan_run(plan, &cancel), KVANT_OK);
    kv_plan_destroy(plan);
}

static void shift(fixture *f) {
    kv_graph g;
    kv_graph_init(&g);
    kv_cache_shift_keys(&g, &(kv_cache_shift_params){&f->rope, &f->store, &f->turns});
    run(&g);
}

static void take_plain(const kv_tensor *t, int32_t cell, uint8_t *plain) {
    kv_layout_unpack(t->layout, t->dtype, t->cols, plain, kv_tensor_data(t), cell, 1);
}

/* ---- what a cell must become: decoded, taken out of its code, rotated, coded as when it was written */

static void rotate_plain(const fixture *f, uint8_t *plain, int64_t delta) {
    const kv_head_code *code = &f->store.k_head;
    const kv_dtype *d = f->store.k.dtype;
    float stored[MAX_HEADS * (MAX_DIM + 32)], heads[MAX_HEADS * MAX_DIM], row[MAX_DIM];
    d->decode(stored, plain, f->store.k.cols);
    kv_heads_restore(heads, stored, f->store.n_kv_heads, code);
    kv_rope_table_row(row, &f->rope, (double)delta, 1);
    for (int32_t h = 0; h < f->store.n_kv_heads; h++) kv_rope_rotate(heads + h * code->dim, &f->rope, row);
    kv_heads_store(stored, heads, f->store.n_kv_heads, code);
    kv_dtype_encode_close(d, plain, stored, f->store.k.cols);
}

/* Blocks of each head that the rotation does not reach are as they were. */
static void check_cell(const fixture *f, const uint8_t *got, const uint8_t *want, const uint8_t *old,
                       const char *text) {
    const kv_dtype *d = f->store.k.dtype;
    int32_t reach = kv_shift_reach(&f->store, &f->rope);
    size_t head = kv_dtype_bytes(d, f->store.k_head.width), reached = kv_dtype_bytes(d, reach);
    for (int32_t h = 0; h < f->store.n_kv_heads; h++) {
        size_t at = (size_t)h * head;
        if (memcmp(got + at, want + at, reached)) fail_msg("%s: head %d is not what it must be", text, h);
        if (memcmp(got + at + reached, old + at + reached, head - reached))
            fail_msg("%s: head %d: numbers that are not rotated have changed", text, h);
    }
}

static int64_t delta_of_cell(const fixture *f, int32_t cell) {
    for (int32_t i = 0; i < N_TURNED; i++)
        if (f->cells[i] == cell) return f->deltas[i];
    return 0;
}

static void check_shape(const shape *s) {
    static uint8_t old[N_CELLS][MAX_HEADS * (MAX_DIM + 32) * 4], want[MAX_HEADS * (MAX_DIM + 32) * 4],
        got[MAX_HEADS * (MAX_DIM + 32) * 4];
    char text[120];
    fixture f;
    open_fixture(&f, s);
    snprintf(text, sizeof text, "%s %s, %d heads of %d%s, n_rot %d", s->dtype->name, s->layout->name,
             s->n_heads, s->dim, s->rotated ? " rotated" : "", s->n_rot);
    uint8_t *values = kv_alloc(1, f.v.bytes);
    assert_non_null(values);
    memcpy(values, f.v.host, f.v.bytes);
    for (int32_t c = 0; c < N_CELLS; c++) take_plain(&f.store.k, c, old[c]);
    shift(&f);
    for (int32_t c = 0; c < N_CELLS; c++) {
        size_t bytes = kv_dtype_bytes(s->dtype, f.store.k.cols);
        memcpy(want, old[c], bytes);
        take_plain(&f.store.k, c, got);
        if (delta_of_cell(&f, c)) {
            rotate_plain(&f, want, delta_of_cell(&f, c));
            check_cell(&f, got, want, old[c], text);
        } else if (memcmp(got, want, bytes)) {
            fail_msg("%s: cell %d, a bystander, has changed", text, c);
        }
    }
    if (memcmp(values, f.v.host, f.v.bytes)) fail_msg("%s: values have changed", text);
    kv_free(values);
    close_fixture(&f);
}

static void test_shift_is_decode_rotate_encode(void **state) {
    (void)state;
    int32_t n = 0;
    for (int32_t d = 0; d < kv_dtype_count(); d++)
        for (int32_t l = 0; kv_dtype_at(d)->caches && l < kv_layout_count(); l++)
            for (size_t i = 0; i < COUNT(dims); i++)
                for (size_t h = 0; h < COUNT(head_counts); h++, n++)
                    check_shape(&(shape){kv_dtype_at(d), kv_layout_at(l), dims[i], head_counts[h],
                                         n % 3 ? dims[i] : dims[i] / 4 * 2, n % 2 == 0, n % 5 ? 1 : 1.3f});
    print_message("%d combinations\n", n);
}

/* ---- what it costs */

/* Keys of all heads and cells as numbers, taken out of their code. */
static void read_keys(const fixture *f, float *keys) {
    float stored[MAX_HEADS * (MAX_DIM + 32)];
    uint8_t plain[sizeof stored];
    for (int32_t c = 0; c < N_CELLS; c++, keys += f->store.n_kv_heads * f->store.k_head.dim) {
        kv_tensor_decode_row(stored, &f->store.k, c, plain);
        kv_heads_restore(keys, stored, f->store.n_kv_heads, &f->store.k_head);
    }
}

static double rms_distance(const float *a, const float *b, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum / n);
}

/* What coding once costs: keys of floats, written and read. */
static double coding_error(fixture *f) {
    int32_t n = f->store.n_kv_heads * f->store.k_head.dim;
    float key[MAX_HEADS * MAX_DIM], back[MAX_HEADS * MAX_DIM];
    double sum = 0;
    for (int32_t c = 0; c < N_CELLS; c++) {
        for (int32_t i = 0; i < n; i++) key[i] = kv_random_normal(&f->random);
        assert_int_equal(kv_store_write_key(&f->store, c, key, &f->rope, NULL), KVANT_OK);
        assert_int_equal(kv_store_read_key(back, &f->store, c, 0, &f->rope), KVANT_OK);
        double d = rms_distance(key, back, n);
        sum += d * d;
    }
    return sqrt(sum / N_CELLS);
}

static void turn_all(fixture *f, int64_t delta) {
    static int32_t cells[N_CELLS];
    static int64_t deltas[N_CELLS];
    for (int32_t c = 0; c < N_CELLS; c++) cells[c] = c, deltas[c] = delta;
    f->turns = (kv_cell_turns){N_CELLS, cells, deltas};
    shift(f);
}

/* There and back is two codings; a hundred shifts to and fro are a hundred, and add up as random errors do:
 * with the root of their number. */
static void check_drift(const kv_dtype *d, int32_t dim) {
    fixture f;
    static float keys[N_CELLS * 2 * MAX_DIM], now[N_CELLS * 2 * MAX_DIM];
    double after[3];
    open_fixture(&f, &(shape){d, &kv_layout_rows, dim, 2, dim, d->block_elems > 1, 1});
    double once = fmax(coding_error(&f), 1e-7);
    read_keys(&f, keys);
    int64_t at = 0, i = 0;
    for (int k = 0; k < 3; k++) {
        static const int64_t counts[] = {2, 10, 100};
        for (; i < counts[k] - 1; i++) {
            int64_t delta = i % 2 ? -31 * i - 1 : 29 * i + 5;
            turn_all(&f, delta);
            at += delta;
        }
        turn_all(&f, -at);
        i++;
        at = 0;
        read_keys(&f, now);
        after[k] = rms_distance(keys, now, N_CELLS * 2 * dim) / once;
        double allowed = 1.5 * sqrt((double)counts[k]);
        if (!(after[k] <= allowed))
            fail_msg("%s, heads of %d: %g times a coding's error after %lld shifts, allowed %g", d->name, dim,
                     after[k], (long long)counts[k], allowed);
    }
    print_message("  %-7s %3d: a coding %.2g; 2, 10, 100 shifts: %.2f, %.2f, %.2f of it\n", d->name, dim,
                  once, after[0], after[1], after[2]);
    close_fixture(&f);
}

static void test_drift(void **state) {
    (void)state;
    for (int32_t d = 0; d < kv_dtype_count(); d++)
        for (int k = 0; kv_dtype_at(d)->caches && k < 2; k++) check_drift(kv_dtype_at(d), k ? 128 : 80);
}

/* Keys keep their length: the magnitude is in them once. */
static void test_magnitude_stays(void **state) {
    (void)state;
    fixture f;
    static float before[N_CELLS * 2 * 64], after[N_CELLS * 2 * 64];
    open_fixture(&f, &(shape){&kv_dtype_f32, &kv_layout_rows, 64, 2, 32, false, 1.5f});
    read_keys(&f, before);
    for (int i = 0; i < 5; i++) turn_all(&f, 100 + i);
    read_keys(&f, after);
    for (int32_t k = 0; k < N_CELLS * 2; k++) {
        double a = 0, b = 0;
        for (int32_t i = 0; i < 64; i++) {
            a += (double)before[k * 64 + i] * (double)before[k * 64 + i];
            b += (double)after[k * 64 + i] * (double)after[k * 64 + i];
        }
        assert_true(fabs(a - b) < 1e-5 * a);
    }
    assert_true(rms_distance(before, after, N_CELLS * 2 * 64) > 0.1);
    close_fixture(&f);
}

/* ---- moving */

static void check_move(const kv_dtype *d, const kv_layout *l) {
    static uint8_t old[N_CELLS][2][2 * 96 * 4 + 512], got[2 * 96 * 4 + 512];
    fixture f;
    open_fixture(&f, &(shape){d, l, 96, 2, 96, false, 1});
    int32_t from[] = {0, 1, 7, 20, 35}, to[] = {2, 19, 8, 30, 33}, source[N_CELLS];
    for (int32_t c = 0; c < N_CELLS; c++) {
        source[c] = c;
        take_plain(&f.store.k, c, old[c][0]);
        take_plain(&f.store.v, c, old[c][1]);
    }
    for (int i = 0; i < 5; i++) source[to[i]] = from[i];
    kv_cell_moves moves = {5, from, to};
    kv_graph g;
    kv_graph_init(&g);
    kv_cache_move(&g, &(kv_cache_move_params){&f.store, &moves});
    run(&g);
    for (int32_t c = 0; c < N_CELLS; c++) {
        size_t bytes = kv_dtype_bytes(d, f.store.k.cols);
        take_plain(&f.store.k, c, got);
        if (memcmp(got, old[source[c]][0], bytes)) fail_msg("%s %s: key of cell %d", d->name, l->name, c);
        take_plain(&f.store.v, c, got);
        if (memcmp(got, old[source[c]][1], bytes)) fail_msg("%s %s: value of cell %d", d->name, l->name, c);
    }
    close_fixture(&f);
}

static void test_moves_are_exact(void **state) {
    (void)state;
    for (int32_t d = 0; d < kv_dtype_count(); d++)
        for (int32_t l = 0; kv_dtype_at(d)->caches && l < kv_layout_count(); l++)
            check_move(kv_dtype_at(d), kv_layout_at(l));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift_is_decode_rotate_encode),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_magnitude_stays),
        cmocka_unit_test(test_moves_are_exact),
    };
    return cmocka_run_group_tests_name("eager cells", tests, open_device, close_device);
}
