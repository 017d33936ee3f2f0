/* Shape rules: every op takes what fits and refuses, with a message that names the input and the numbers,
 * what does not: a wrong size, a missing input, a coded tensor where plain floats are read, parameters that
 * do not divide. Helpers of op.h: reading and writing rows in any layout.
 *
 * ctest: single */
#include "op/attend.h"
#include "op/cache_write.h"
#include "op/embed.h"
#include "op/glu.h"
#include "op/matmul.h"
#include "op/norm.h"
#include "op/rope_table.h"
#include "op/select.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static kv_buffer nowhere; /* shapes are checked, bytes never read */

static kv_tensor shape(const kv_dtype *d, int64_t rows, int64_t cols) {
    return (kv_tensor){.dtype = d, .layout = &kv_layout_rows, .rows = rows, .cols = cols, .buffer = &nowhere};
}

static kv_tensor floats(int64_t rows, int64_t cols) { return shape(KV_FLOAT, rows, cols); }

static kv_graph graph;

static int open_graph(void **state) {
    (void)state;
    kv_graph_init(&graph);
    graph.label = "blk.1";
    return 0;
}

static int close_graph(void **state) {
    (void)state;
    kv_graph_clear(&graph);
    return 0;
}

/* The last builder failed with this message; the graph goes on. */
static void refused(const char *message) {
    assert_int_equal(graph.status, KVANT_INVALID);
    assert_string_equal(kv_last_error(), message);
    graph.status = KVANT_OK;
}

static void accepted(const kv_tensor *out, int64_t rows, int64_t cols) {
    assert_int_equal(graph.status, KVANT_OK);
    assert_non_null(out);
    assert_true(out->rows == rows && out->cols == cols);
}

static void test_matmul(void **state) {
    (void)state;
    kv_tensor x = floats(3, 64), w = shape(&kv_dtype_q4_0, 5, 64), thin = shape(&kv_dtype_q4_0, 5, 32);
    kv_tensor bias = floats(1, 5), long_bias = floats(1, 6), residual = floats(3, 5), other = floats(2, 5);
    kv_matmul_params p = {0};
    accepted(kv_matmul(&graph, &p, &x, &w, &bias, &residual, KV_FLOAT), 3, 5);
    kv_matmul(&graph, &p, &x, &thin, NULL, NULL, KV_FLOAT);
    refused("matmul (blk.1): weight is 5 x 32, expected -1 x 64 (-1: any)");
    kv_matmul(&graph, &p, &x, &w, &long_bias, NULL, KV_FLOAT);
    refused("matmul (blk.1): bias is 1 x 6, expected 1 x 5 (-1: any)");
    kv_matmul(&graph, &p, &x, &w, NULL, &other, KV_FLOAT);
    refused("matmul (blk.1): residual is 2 x 5, expected 3 x 5 (-1: any)");
    kv_matmul(&graph, &p, &x, &w, NULL, NULL, &kv_dtype_a8);
    refused("blk.1: a result of 5 columns is not whole blocks of a8 (32)");
}

static void test_glu(void **state) {
    (void)state;
    kv_tensor a = floats(3, 64), b = floats(3, 32), coded = shape(&kv_dtype_a8, 3, 64);
    kv_tensor w = floats(32, 64), more = floats(33, 64);
    kv_glu_params p = {KV_GLU_SILU};
    accepted(kv_glu(&graph, &p, &a, &a, &kv_dtype_a8), 3, 64);
    kv_glu(&graph, &p, &a, &b, KV_FLOAT);
    refused("glu (blk.1): up is 3 x 32, expected 3 x 64 (-1: any)");
    kv_glu(&graph, &p, &coded, &a, KV_FLOAT);
    refused("glu (blk.1): gate is a8 in layout rows, expected plain floats");
    accepted(kv_matmul_glu(&graph, &p, &a, &w, &w, KV_FLOAT), 3, 32);
    kv_matmul_glu(&graph, &p, &a, &w, &more, KV_FLOAT);
    refused("matmul_glu (blk.1): up weight is 33 x 64, expected 32 x 64 (-1: any)");
}

static void test_norm(void **state) {
    (void)state;
    kv_tensor x = floats(3, 64), w = floats(1, 16), wide = floats(1, 64);
    accepted(kv_norm(&graph, &(kv_norm_params){1e-5f, 16}, &x, &w, &x, KV_FLOAT), 3, 64);
    kv_norm(&graph, &(kv_norm_params){1e-5f, 15}, &x, &w, NULL, KV_FLOAT);
    refused("norm (blk.1): width 15 does not divide 64 columns");
    kv_norm(&graph, &(kv_norm_params){1e-5f, 0}, &x, &w, NULL, KV_FLOAT);
    refused("norm (blk.1): width 0 does not divide 64 columns");
    kv_norm(&graph, &(kv_norm_params){1e-5f, 16}, &x, &wide, NULL, KV_FLOAT);
    refused("norm (blk.1): weight is 1 x 64, expected 1 x 16 (-1: any)");
}

static void test_rows(void **state) {
    (void)state;
    kv_tensor table = shape(&kv_dtype_q6_k, 9, 256), coded = shape(&kv_dtype_q8_0, 9, 64), x = floats(9, 64);
    int32_t ids[4] = {0};
    accepted(kv_embed(&graph, &(kv_embed_params){ids, 1}, &table, 4, KV_FLOAT), 4, 256);
    kv_embed(&graph, &(kv_embed_params){ids, 1}, &table, 4, &kv_dtype_a8);
    refused("embed (blk.1): out is a8 in layout rows, expected plain floats");
    accepted(kv_select(&graph, &(kv_select_params){ids}, &x, 4), 4, 64);
    kv_select(&graph, &(kv_select_params){ids}, &coded, 4);
    refused("select (blk.1): x is q8_0 in layout rows, expected plain floats");
}

static void test_cells(void **state) {
    (void)state;
    double freq[16] = {0};
    kv_rope rope = {.n_rot = 32, .magnitude = 1, .freq = freq}, too_wide = {.n_rot = 34, .freq = freq};
    kv_store store = {.k = floats(100, 64),
                      .v = floats(100, 64),
                      .n_kv_heads = 2,
                      .k_head = {32, 32, 1},
                      .v_head = {32, 32, 1}};
    kv_batch_view batch = {0};
    kv_tensor k = floats(3, 64), v = floats(3, 64), fewer = floats(2, 64), table = floats(8, 32),
              bad_table = floats(8, 30), q = floats(3, 128), odd = floats(3, 96);
    kv_cache_write_params write = {&rope, &store, &batch};
    kv_cache_write(&graph, &write, &k, &v, &table);
    assert_int_equal(graph.status, KVANT_OK);
    kv_cache_write(&graph, &write, &k, &fewer, &table);
    refused("cache_write (blk.1): v is 2 x 64, expected 3 x 64 (-1: any)");
    kv_cache_write(&graph, &write, &k, &v, NULL);
    refused("cache_write (blk.1): rope table is missing");
    write.rope = &too_wide;
    kv_cache_write(&graph, &write, &k, &v, &table);
    refused("cache_write (blk.1): 34 rotary dimensions, more than the head's 32");

    kv_attend_params p = {.rope = &rope, .store = &store, .batch = &batch, .n_heads = 4, .scale = 1};
    accepted(kv_attend(&graph, &p, &q, &table, &kv_dtype_a8), 3, 128);
    kv_attend(&graph, &p, &odd, &table, KV_FLOAT);
    refused("attend (blk.1): q is 3 x 96, expected -1 x 128 (-1: any)");
    kv_attend(&graph, &p, &q, &bad_table, KV_FLOAT);
    refused("attend (blk.1): rope table is 8 x 30, expected -1 x 32 (-1: any)");
    p.n_heads = 3;
    kv_attend(&graph, &p, &odd, &table, KV_FLOAT);
    refused("attend (blk.1): 3 heads, not a multiple of 2 KV heads");
    p.n_heads = 4;
    p.rope = &too_wide;
    kv_attend(&graph, &p, &q, &table, KV_FLOAT);
    refused("attend (blk.1): 34 rotary dimensions, more than the head's 32");
}

static void test_parameters_are_copied(void **state) {
    (void)state;
    kv_tensor x = floats(3, 64), w = floats(5, 64);
    kv_matmul_params p = {.softcap = 30};
    kv_matmul(&graph, &p, &x, &w, NULL, NULL, KV_FLOAT);
    p.softcap = 1;
    const kv_node *n = graph.nodes.at[graph.nodes.count - 1];
    assert_true(((const kv_matmul_params *)n->params)->softcap == 30);
    assert_string_equal(n->label, "blk.1");
}

static void test_rows_of_any_layout(void **state) {
    (void)state;
    uint8_t bytes[16 * 34 * 2], plain[34 * 2];
    kv_buffer b = {.bytes = sizeof bytes, .host = bytes};
    kv_tensor t = {
        .dtype = &kv_dtype_q8_0, .layout = &kv_layout_tile16x4, .rows = 11, .cols = 64, .buffer = &b};
    float row[64], back[64], again[64];
    memset(bytes, 0, sizeof bytes);
    for (int i = 0; i < 64; i++) row[i] = (float)(i - 30);
    t.dtype->encode(plain, row, 64);
    t.dtype->decode(back, plain, 64);
    kv_layout_pack(t.layout, t.dtype, t.cols, bytes, plain, 10, 1);
    assert_int_equal(kv_read_row(again, &t, 10), KVANT_OK);
    assert_memory_equal(again, back, sizeof back);
    assert_int_equal(kv_read_row(again, &t, 9), KVANT_OK);
    for (int i = 0; i < 64; i++) assert_true(again[i] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_matmul, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(test_glu, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(test_norm, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(test_rows, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(test_cells, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(test_parameters_are_copied, open_graph, close_graph),
        cmocka_unit_test(test_rows_of_any_layout),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
