/* From graph to plan, with devices that know only some ops: what a device cannot do is expanded, then moved,
 * then refused by name; what crosses between devices is copied, once for each device that reads it, and
 * nothing else is; stages hold nothing that depends on each other; tensors alive together never overlap, and
 * scratch is used again; the dump names what runs where; an expansion computes what the fused op does.
 */
#include "base/cpu.h"
#include "base/random.h"
#include "device/cpu/cpu_device.h"
#include "op/glu.h"
#include "op/matmul.h"
#include "op/norm.h"
#include "op/rope_table.h"
#include "op/select.h"
#include "remote_device.h"
#include "sched/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- a device that runs references, of the ops it is told to know */

enum { MAX_OPS = 4, MAX_LINES = 64 };

typedef struct fake {
    kv_device device;
    const kv_op *refuses[MAX_OPS];
    kv_status prepares; /* what `prepare` says */
} fake;

static kv_status fake_alloc(kv_device *d, kv_buffer *out, size_t bytes) {
    uint8_t *p = kv_alloc_aligned(1, bytes);
    if (!p) return KVANT_NO_MEMORY;
    *out = (kv_buffer){.device = d, .bytes = bytes, .host = p, .handle = p};
    return KVANT_OK;
}

static void fake_release(kv_buffer *b) {
    kv_free(b->handle);
    *b = (kv_buffer){0};
}

static kv_status fake_upload(kv_range to, const void *from) {
    memcpy(to.buffer->host + to.at, from, to.bytes);
    return KVANT_OK;
}

static kv_status fake_download(void *to, kv_range from) {
    memcpy(to, from.buffer->host + from.at, from.bytes);
    return KVANT_OK;
}

static bool fake_supports(const kv_device *d, const kv_node *n) {
    const fake *f = d->impl;
    for (int i = 0; i < MAX_OPS; i++)
        if (f->refuses[i] == n->op) return false;
    return true;
}

static kv_status fake_prepare(kv_device *d, kv_segment *s) {
    const fake *f = d->impl;
    (void)s;
    return f->prepares ? kv_fail(f->prepares, "the fake device does not prepare") : KVANT_OK;
}

static kv_status fake_submit(kv_device *d, const kv_segment *s, atomic_bool *cancel) {
    (void)d, (void)cancel;
    for (int32_t i = 0; i < s->n_nodes; i++) KV_TRY(s->nodes[i]->op->reference(s->nodes[i]));
    return KVANT_OK;
}

static const char *fake_kernel_name(const kv_device *d, const kv_node *n) {
    (void)d;
    return n->op->name;
}

static fake make_fake(const char *name) {
    fake f = {.device = {.alloc = fake_alloc,
                         .release = fake_release,
                         .upload = fake_upload,
                         .download = fake_download,
                         .supports = fake_supports,
                         .prepare = fake_prepare,
                         .submit = fake_submit,
                         .kernel_name = fake_kernel_name}};
    snprintf(f.device.name, sizeof f.device.name, "%s", name);
    return f;
}

static void finish_fake(fake *f) { f->device.impl = f; }

/* ---- tensors */

/* Random numbers, memory of its own; `device` owns it. */
static kv_tensor weights(kv_device *device, kv_buffer *b, const kv_dtype *d, int64_t rows, int64_t cols) {
    kv_tensor t = {.dtype = d, .layout = &kv_layout_rows, .rows = rows, .cols = cols, .buffer = b};
    kv_random random;
    kv_random_init(&random, (uint64_t)(rows * cols));
    float *row = kv_alloc((size_t)cols, sizeof *row);
    assert_non_null(row);
    *b = (kv_buffer){
        .device = device, .bytes = kv_tensor_bytes(&t), .host = kv_alloc_aligned(1, kv_tensor_bytes(&t))};
    assert_non_null(b->host);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) row[c] = kv_random_normal(&random) / sqrtf((float)cols);
        kv_write_row(&t, r, row);
    }
    kv_free(row);
    return t;
}

typedef struct lines {
    kv_plan_line at[MAX_LINES];
    int32_t n;
} lines;

static void add_line(void *user, const kv_plan_line *line) {
    lines *l = user;
    assert_true(l->n < MAX_LINES);
    l->at[l->n++] = *line;
}

static lines dump_of(const kv_plan *p) {
    lines l = {0};
    kv_plan_dump(p, add_line, &l);
    return l;
}

static kv_plan *plan_of(kv_graph *g, kv_device *const *devices, int32_t n) {
    kv_plan *p = NULL;
    if (kv_plan_create(&p, g, devices, n)) fail_msg("%s", kv_last_error());
    return p;
}

static void run_plan(kv_plan *p) {
    atomic_bool cancel = false;
    assert_int_equal(kv_plan_run(p, &cancel), KVANT_OK);
}

/* ---- placement */

/* matmul_glu of 3 rows, 64 columns, 32 results, on weights that `device` owns. */
typedef struct glu_case {
    kv_buffer x_buffer, gate_buffer, up_buffer;
    kv_tensor x, gate, up;
    kv_graph graph;
    kv_tensor *out;
} glu_case;

static void open_glu(glu_case *c, kv_device *device) {
    c->x = weights(device, &c->x_buffer, KV_FLOAT, 3, 64);
    c->gate = weights(device, &c->gate_buffer, &kv_dtype_q8_0, 32, 64);
    c->up = weights(device, &c->up_buffer, &kv_dtype_f16, 32, 64);
    kv_graph_init(&c->graph);
    c->graph.label = "blk.0 ffn";
    c->out = kv_matmul_glu(&c->graph, &(kv_glu_params){KV_GLU_GELU}, &c->x, &c->gate, &c->up, KV_FLOAT);
    assert_int_equal(c->graph.status, KVANT_OK);
}

static void close_glu(glu_case *c) {
    kv_free(c->x_buffer.host);
    kv_free(c->gate_buffer.host);
    kv_free(c->up_buffer.host);
}

static void test_what_a_device_knows_stays_whole(void **state) {
    (void)state;
    fake a = make_fake("a:0");
    finish_fake(&a);
    glu_case c;
    open_glu(&c, &a.device);
    kv_plan *p = plan_of(&c.graph, (kv_device *[]){&a.device}, 1);
    lines l = dump_of(p);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.at[0].op, "matmul_glu");
    kv_plan_destroy(p);
    close_glu(&c);
}

/* Fused and expanded: the same three references, so the same bits. */
static void test_what_it_does_not_know_is_expanded(void **state) {
    (void)state;
    fake whole = make_fake("whole:0"), parts = make_fake("parts:0");
    finish_fake(&whole);
    finish_fake(&parts);
    parts.refuses[0] = &kv_op_matmul_glu;
    float result[2][96];
    fake *devices[] = {&whole, &parts};
    for (int i = 0; i < 2; i++) {
        glu_case c;
        open_glu(&c, &devices[i]->device);
        kv_plan *p = plan_of(&c.graph, (kv_device *[]){&devices[i]->device}, 1);
        run_plan(p);
        memcpy(result[i], kv_tensor_data(c.out), sizeof result[i]);
        if (i == 1) {
            static const char *const ops[] = {"matmul", "matmul", "glu"};
            static const int32_t stages[] = {0, 0, 1};
            lines l = dump_of(p);
            assert_int_equal(l.n, 3);
            for (int k = 0; k < 3; k++) {
                assert_string_equal(l.at[k].op, ops[k]);
                assert_string_equal(l.at[k].label, "blk.0 ffn");
                assert_string_equal(l.at[k].device, "parts:0");
                assert_int_equal(l.at[k].stage, stages[k]);
            }
        }
        kv_plan_destroy(p);
        close_glu(&c);
    }
    assert_memory_equal(result[0], result[1], sizeof result[0]);
}

static void expect_refusal(kv_graph *g, kv_device *const *devices, int32_t n, const char *message) {
    kv_plan *p = NULL;
    assert_int_equal(kv_plan_create(&p, g, devices, n), KVANT_UNSUPPORTED);
    assert_null(p);
    assert_int_equal(g->nodes.count, 0); /* taken on failure too */
    if (!strstr(kv_last_error(), message)) fail_msg("the message is: %s", kv_last_error());
}

static void test_what_cannot_be_expanded_moves(void **state) {
    (void)state;
    fake a = make_fake("a:0"), b = make_fake("b:0");
    finish_fake(&a);
    finish_fake(&b);
    a.refuses[0] = &kv_op_rope_table; /* which nothing ties to a device */
    static const double freq[] = {1};
    static const int64_t stored[] = {5};
    kv_rope rope = {.n_rot = 2, .magnitude = 1, .freq = freq};
    kv_angles angles = {.n_tokens = 1, .stored = stored};
    kv_graph g;
    kv_graph_init(&g);
    kv_tensor *table = kv_rope_table(&g, &(kv_rope_table_params){&rope, &angles}, 1);
    kv_plan *p = plan_of(&g, (kv_device *[]){&a.device, &b.device}, 2);
    assert_string_equal(dump_of(p).at[0].device, "b:0");
    run_plan(p);
    assert_true(fabs((double)((float *)kv_tensor_data(table))[0] - cos(5)) < 1e-6);
    kv_plan_destroy(p);
}

/* ... but not away from its weights: nothing copies them. */
static void test_weights_do_not_move(void **state) {
    (void)state;
    fake a = make_fake("a:0"), b = make_fake("b:0");
    finish_fake(&a);
    finish_fake(&b);
    a.refuses[0] = &kv_op_matmul_glu;
    a.refuses[1] = &kv_op_matmul;
    glu_case c;
    open_glu(&c, &a.device);
    expect_refusal(&c.graph, (kv_device *[]){&a.device, &b.device}, 2,
                   "matmul (blk.0 ffn) is on b:0, its input on a:0");
    close_glu(&c);
}

static void test_what_nobody_knows_is_refused_by_name(void **state) {
    (void)state;
    fake a = make_fake("a:0"), b = make_fake("b:0");
    finish_fake(&a);
    finish_fake(&b);
    a.refuses[0] = b.refuses[0] = &kv_op_matmul_glu;
    a.refuses[1] = b.refuses[1] = &kv_op_glu;
    glu_case c;
    open_glu(&c, &a.device);
    expect_refusal(&c.graph, (kv_device *[]){&a.device, &b.device}, 2, "no device can run glu (blk.0 ffn)");
    close_glu(&c);
}

/* What one device computes and another reads is copied, and the dump says so. */
static void test_what_moves_gets_its_inputs_copied(void **state) {
    (void)state;
    fake a = make_fake("a:0"), b = make_fake("b:0");
    finish_fake(&a);
    finish_fake(&b);
    a.refuses[0] = &kv_op_matmul_glu;
    a.refuses[1] = &kv_op_glu;
    glu_case c;
    open_glu(&c, &a.device);
    kv_plan *p = plan_of(&c.graph, (kv_device *[]){&a.device, &b.device}, 2);
    static const char *const ops[] = {"matmul", "matmul", "copy", "copy", "glu"};
    static const char *const where[] = {"a:0", "a:0", "b:0", "b:0", "b:0"};
    lines l = dump_of(p);
    assert_int_equal(l.n, 5);
    for (int i = 0; i < 5; i++) {
        bool copied = i == 2 || i == 3;
        assert_string_equal(l.at[i].op, ops[i]);
        assert_string_equal(l.at[i].device, where[i]);
        assert_int_equal(l.at[i].bytes, copied ? 3 * 32 * sizeof(float) : 0);
        if (copied) assert_string_equal(l.at[i].from, "a:0");
    }
    assert_int_equal(kv_plan_crossing_bytes(p), 2 * 3 * 32 * sizeof(float));
    assert_int_equal(kv_plan_device_bytes(p, &a.device) + kv_plan_device_bytes(p, &b.device),
                     kv_plan_scratch_bytes(p));
    run_plan(p);
    kv_plan_destroy(p);
    close_glu(&c);
}

/* A node without weights runs where its input comes from, not on the device that happens to be first. */
static void test_a_node_follows_its_input(void **state) {
    (void)state;
    fake a = make_fake("a:0"), b = make_fake("b:0");
    finish_fake(&a);
    finish_fake(&b);
    glu_case c;
    open_glu(&c, &b.device);
    static const int32_t rows[] = {2, 0};
    kv_tensor *picked = kv_select(&c.graph, &(kv_select_params){rows}, c.out, 2);
    assert_non_null(picked);
    kv_plan *p = plan_of(&c.graph, (kv_device *[]){&a.device, &b.device}, 2);
    lines l = dump_of(p);
    for (int32_t i = 0; i < l.n; i++) assert_string_equal(l.at[i].device, "b:0");
    kv_plan_destroy(p);
    close_glu(&c);
}

static void test_failures_of_a_device_are_passed_on(void **state) {
    (void)state;
    fake a = make_fake("a:0");
    finish_fake(&a);
    a.prepares = KVANT_UNSUPPORTED;
    glu_case c;
    open_glu(&c, &a.device);
    expect_refusal(&c.graph, (kv_device *[]){&a.device}, 1, "does not prepare");
    kv_graph empty;
    kv_plan *p = NULL;
    kv_graph_init(&empty);
    assert_int_equal(kv_plan_create(&p, &empty, (kv_device *[]){&a.device}, 1), KVANT_INVALID);
    close_glu(&c);
}

/* ---- graph */

static void test_shapes_that_do_not_fit(void **state) {
    (void)state;
    fake a = make_fake("a:0");
    finish_fake(&a);
    kv_buffer x_buffer, w_buffer;
    kv_tensor x = weights(&a.device, &x_buffer, KV_FLOAT, 2, 16),
              w = weights(&a.device, &w_buffer, KV_FLOAT, 4, 32);
    kv_graph g;
    kv_graph_init(&g);
    g.label = "blk.7";
    kv_tensor *y = kv_matmul(&g, &(kv_matmul_params){0}, &x, &w, NULL, NULL, KV_FLOAT);
    assert_null(y);
    assert_int_equal(g.status, KVANT_INVALID);
    assert_string_equal(kv_last_error(), "matmul (blk.7): weight is 4 x 32, expected -1 x 16 (-1: any)");
    /* what follows a failure does nothing, and does not hide it */
    assert_null(kv_norm(&g, &(kv_norm_params){1e-5f, 16}, y, &w, NULL, KV_FLOAT));
    kv_plan *p = NULL;
    assert_int_equal(kv_plan_create(&p, &g, (kv_device *[]){&a.device}, 1), KVANT_INVALID);
    assert_null(p);
    kv_free(x_buffer.host);
    kv_free(w_buffer.host);
}

/* ---- stages and scratch: a chain of blocks like a model's */

enum { CHAIN = 12, WIDTH = 64, ROWS = 5 };

typedef struct chain {
    kv_buffer norm_buffer, w_buffer, x_buffer;
    kv_tensor norm, w, x;
    kv_graph graph;
} chain;

/* x += w . (gelu(w . h) * (w . h)), h = norm(x): residuals live across others. */
static void open_chain(chain *c, kv_device *device) {
    c->norm = weights(device, &c->norm_buffer, KV_FLOAT, 1, WIDTH);
    c->w = weights(device, &c->w_buffer, &kv_dtype_q8_0, WIDTH, WIDTH);
    c->x = weights(device, &c->x_buffer, KV_FLOAT, ROWS, WIDTH);
    kv_graph *g = &c->graph;
    kv_graph_init(g);
    kv_tensor *x = &c->x;
    for (int i = 0; i < CHAIN; i++) {
        kv_tensor *h = kv_norm(g, &(kv_norm_params){1e-5f, WIDTH}, x, &c->norm, NULL, KV_FLOAT);
        kv_tensor *gate = kv_matmul(g, &(kv_matmul_params){0}, h, &c->w, NULL, NULL, KV_FLOAT);
        kv_tensor *up = kv_matmul(g, &(kv_matmul_params){0}, h, &c->w, NULL, NULL, KV_FLOAT);
        kv_tensor *mixed = kv_glu(g, &(kv_glu_params){KV_GLU_GELU}, gate, up, &kv_dtype_a8);
        x = kv_matmul(g, &(kv_matmul_params){0}, mixed, &c->w, NULL, x, KV_FLOAT);
    }
    assert_int_equal(g->status, KVANT_OK);
}

static void close_chain(chain *c) {
    kv_free(c->norm_buffer.host);
    kv_free(c->w_buffer.host);
    kv_free(c->x_buffer.host);
}

static bool reads(const kv_node *n, const kv_tensor *t) {
    for (int i = 0; i < KV_MAX_INPUTS; i++)
        if (n->in[i] == t) return true;
    return false;
}

/* Last stage in which the result of line i is read; its own if nobody does. */
static int32_t last_use(const lines *l, int32_t i) {
    int32_t last = INT32_MAX; /* results that nobody reads are the caller's */
    for (int32_t k = i + 1; k < l->n; k++)
        if (reads(l->at[k].node, l->at[i].node->out)) last = l->at[k].stage;
    return last;
}

static void check_stages(const lines *l) {
    for (int32_t i = 1; i < l->n; i++) {
        assert_true(l->at[i].stage == l->at[i - 1].stage || l->at[i].stage == l->at[i - 1].stage + 1);
        for (int32_t k = 0; k < i; k++)
            if (reads(l->at[i].node, l->at[k].node->out)) assert_true(l->at[k].stage < l->at[i].stage);
    }
}

static void check_overlaps(const lines *l) {
    for (int32_t i = 0; i < l->n; i++)
        for (int32_t k = 0; k < i; k++) {
            const kv_tensor *a = l->at[i].node->out, *b = l->at[k].node->out;
            bool together = l->at[i].stage <= last_use(l, k);
            bool overlap =
                a->offset < b->offset + kv_tensor_bytes(b) && b->offset < a->offset + kv_tensor_bytes(a);
            if (together && overlap)
                fail_msg("the results of nodes %d and %d are alive together and overlap", k, i);
            assert_true(a->offset % 64 == 0 && a->offset + kv_tensor_bytes(a) <= a->buffer->bytes);
        }
}

static void test_scratch_is_shared_by_lifetime(void **state) {
    (void)state;
    fake a = make_fake("a:0");
    finish_fake(&a);
    chain c;
    open_chain(&c, &a.device);
    kv_plan *p = plan_of(&c.graph, (kv_device *[]){&a.device}, 1);
    lines l = dump_of(p);
    assert_int_equal(l.n, 5 * CHAIN);
    check_stages(&l);
    check_overlaps(&l);
    assert_int_equal(l.at[1].stage, l.at[2].stage); /* gate and up run side by side */
    assert_int_equal(l.at[l.n - 1].stage + 1, 4 * CHAIN);
    size_t sum = 0;
    for (int32_t i = 0; i < l.n; i++) sum += kv_tensor_bytes(l.at[i].node->out);
    print_message("  scratch: %zu bytes for results of %zu\n", kv_plan_scratch_bytes(p), sum);
    assert_true(kv_plan_scratch_bytes(p) * 10 < sum);
    kv_plan_destroy(p);
    close_chain(&c);
}

/* Sharing memory changes nothing: every result against a run in which each has its own. */
static void test_sharing_changes_no_result(void **state) {
    (void)state;
    fake a = make_fake("a:0");
    finish_fake(&a);
    chain c;
    open_chain(&c, &a.device);
    kv_plan *p = plan_of(&c.graph, (kv_device *[]){&a.device}, 1);
    run_plan(p);
    lines l = dump_of(p);
    float shared[ROWS * WIDTH];
    memcpy(shared, kv_tensor_data(l.at[l.n - 1].node->out), sizeof shared);
    kv_buffer own[MAX_LINES];
    for (int32_t i = 0; i < l.n; i++) {
        kv_tensor *out = l.at[i].node->out;
        assert_int_equal(fake_alloc(&a.device, &own[i], kv_tensor_bytes(out)), KVANT_OK);
        out->buffer = &own[i];
        out->offset = 0;
    }
    run_plan(p);
    assert_memory_equal(own[l.n - 1].host, shared, sizeof shared);
    for (int32_t i = 0; i < l.n; i++) fake_release(&own[i]);
    kv_plan_destroy(p);
    close_chain(&c);
}

/* ---- order through a store: nodes that only share what they write and read */

typedef struct store_case {
    kv_op write, read;
    int order[4], n;
} store_case;

static store_case *running;

static kv_status check_nothing(const kv_node *n) { return (void)n, KVANT_OK; }
static kv_status run_write(const kv_node *n) { return (void)n, running->order[running->n++] = 1, KVANT_OK; }
static kv_status run_read(const kv_node *n) { return (void)n, running->order[running->n++] = 2, KVANT_OK; }

static void test_a_store_orders_its_nodes(void **state) {
    (void)state;
    store_case s = {.write = {.name = "write", .check = check_nothing, .reference = run_write},
                    .read = {.name = "read", .check = check_nothing, .reference = run_read}};
    fake a = make_fake("a:0"), b = make_fake("b:0");
    finish_fake(&a);
    finish_fake(&b);
    kv_graph g;
    kv_graph_init(&g);
    int store = 0, other = 0, nothing = 0;
    kv_node nodes[] = {
        {.op = &s.write, .params = &nothing, .writes = &store, .home = &b.device},
        {.op = &s.read,
         .params = &nothing,
         .reads = &other,
         .home = &b.device}, /* another store: same stage */
        {.op = &s.read, .params = &nothing, .reads = &store, .home = &b.device},
        {.op = &s.write, .params = &nothing, .writes = &store, .home = &b.device},
    };
    for (int i = 0; i < 4; i++) kv_graph_add(&g, &nodes[i], sizeof nothing);
    kv_plan *p = plan_of(&g, (kv_device *[]){&a.device, &b.device}, 2);
    lines l = dump_of(p);
    static const int32_t stages[] = {0, 0, 1, 2};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(l.at[i].stage, stages[i]);
        assert_string_equal(l.at[i].device, "b:0"); /* where the store is */
    }
    running = &s;
    run_plan(p);
    assert_int_equal(s.n, 4);
    kv_plan_destroy(p);
}

/* ---- several devices */

enum { LINKS = 6 };

/* y = w . norm(y), link by link, the weights of link i on devices[i % n]; with the sum of two earlier links'
 * results in the end, so that values are read again long after they were made. */
typedef struct links {
    kv_buffer buffers[2 * LINKS + 1];
    kv_tensor norm[LINKS], w[LINKS], x;
    kv_graph graph;
    kv_tensor *out;
} links;

static kv_tensor remote_weights(kv_device *d, kv_buffer *b, int64_t rows, int64_t cols) {
    kv_buffer plain;
    kv_tensor t = weights(d, &plain, KV_FLOAT, rows, cols);
    assert_int_equal(d->alloc(d, b, kv_tensor_bytes(&t)), KVANT_OK);
    assert_int_equal(d->upload((kv_range){b, 0, kv_tensor_bytes(&t)}, plain.host), KVANT_OK);
    kv_free(plain.host);
    t.buffer = b;
    return t;
}

static void open_links(links *c, kv_device *const *devices, int32_t n) {
    kv_graph *g = &c->graph;
    kv_tensor *y, *results[LINKS];
    kv_graph_init(g);
    c->x = remote_weights(devices[0], &c->buffers[2 * LINKS], ROWS, WIDTH);
    y = &c->x;
    for (int i = 0; i < LINKS; i++) {
        c->norm[i] = remote_weights(devices[i % n], &c->buffers[2 * i], 1, WIDTH);
        c->w[i] = remote_weights(devices[i % n], &c->buffers[2 * i + 1], WIDTH, WIDTH);
        g->label = i % 2 ? "odd" : "even";
        kv_tensor *h = kv_norm(g, &(kv_norm_params){1e-5f, WIDTH}, y, &c->norm[i], NULL, KV_FLOAT);
        y = results[i] = kv_matmul(g, &(kv_matmul_params){0}, h, &c->w[i], NULL, y, KV_FLOAT);
    }
    c->out = kv_glu(g, &(kv_glu_params){KV_GLU_SILU}, results[LINKS - 1], results[1], KV_FLOAT);
    assert_int_equal(g->status, KVANT_OK);
}

static void close_links(links *c) {
    for (size_t i = 0; i < sizeof c->buffers / sizeof *c->buffers; i++) {
        assert_int_equal(kv_device_sync(c->buffers[i].device), KVANT_OK);
        c->buffers[i].device->release(&c->buffers[i]);
    }
}

/* Devices that the host does not reach and that run nothing before they are waited for: the bits of one
 * device on any number of them; each value copied once for each device that reads it. */
static void test_devices_exchange_copies(void **state) {
    (void)state;
    float want[ROWS * WIDTH], got[ROWS * WIDTH];
    for (int32_t n = 1; n <= 3; n++) {
        remote r[3];
        kv_device *devices[3];
        for (int32_t i = 0; i < n; i++) {
            char name[16];
            snprintf(name, sizeof name, "far:%d", i);
            remote_open(&r[i], name);
            devices[i] = &r[i].device;
        }
        links c;
        open_links(&c, devices, n);
        kv_plan *p = plan_of(&c.graph, devices, n);
        for (int run = 0; run < 2; run++) run_plan(p);
        assert_int_equal(kv_tensor_download(n == 1 ? want : got, c.out), KVANT_OK);
        if (n > 1) assert_memory_equal(want, got, sizeof want);
        /* from link to link; what the end reads again, its device has read before */
        size_t value = ROWS * WIDTH * sizeof(float), crossings = n == 1 ? 0 : LINKS - 1;
        assert_int_equal(kv_plan_crossing_bytes(p), crossings * value);
        int64_t up = 0;
        for (int32_t i = 0; i < n; i++) up += r[i].uploaded;
        int64_t weights_up = (int64_t)((ROWS + LINKS * (1 + WIDTH)) * WIDTH * sizeof(float));
        assert_int_equal(up - weights_up, 2 * crossings * value);
        kv_plan_destroy(p);
        close_links(&c);
        for (int32_t i = 0; i < n; i++) remote_close(&r[i]);
    }
}

/* A failure, or a cancel, in the middle of segments: every queue is empty afterwards, and the next run right.
 */
static void test_a_run_that_fails_between_devices(void **state) {
    (void)state;
    remote r[2];
    remote_open(&r[0], "far:0");
    remote_open(&r[1], "far:1");
    kv_device *devices[] = {&r[0].device, &r[1].device};
    links c;
    open_links(&c, devices, 2);
    kv_plan *p = plan_of(&c.graph, devices, 2);
    float want[ROWS * WIDTH], got[ROWS * WIDTH];
    atomic_bool cancel = false;
    run_plan(p);
    assert_int_equal(kv_tensor_download(want, c.out), KVANT_OK);
    for (int32_t i = 1; i <= 3; i++) {
        r[1].fail_at = (int32_t)r[1].n_runs + i;
        assert_int_equal(kv_plan_run(p, &cancel), KVANT_FAILED);
        assert_string_equal(kv_last_error(), "far:1: failed on purpose");
        assert_int_equal(r[0].n_queued + r[1].n_queued, 0);
    }
    cancel = true;
    assert_int_equal(kv_plan_run(p, &cancel), KVANT_CANCELLED);
    assert_int_equal(r[0].n_queued + r[1].n_queued, 0);
    run_plan(p);
    assert_int_equal(kv_tensor_download(got, c.out), KVANT_OK);
    assert_memory_equal(want, got, sizeof want);
    kv_plan_destroy(p);
    close_links(&c);
}

/* A table that is computed from nothing is computed where it is read, and copied only to a device that
 * cannot. */
static void test_sources_are_made_where_they_are_read(void **state) {
    (void)state;
    static const double freq[] = {1};
    static const int64_t stored[] = {5};
    kv_rope rope = {.n_rot = 2, .magnitude = 1, .freq = freq};
    kv_angles angles = {.n_tokens = 1, .stored = stored};
    for (int able = 0; able < 2; able++) {
        fake a = make_fake("a:0"), b = make_fake("b:0"), c = make_fake("c:0");
        finish_fake(&a), finish_fake(&b), finish_fake(&c);
        if (!able) c.refuses[0] = &kv_op_rope_table;
        kv_graph g;
        kv_graph_init(&g);
        kv_op read = {.name = "read", .check = check_nothing};
        kv_tensor *table = kv_rope_table(&g, &(kv_rope_table_params){&rope, &angles}, 1);
        kv_device *homes[] = {&b.device, &c.device, &b.device};
        for (int i = 0; i < 3; i++)
            kv_graph_add(&g, &(kv_node){.op = &read, .in = {table}, .params = &i, .home = homes[i]},
                         sizeof i);
        kv_plan *p = plan_of(&g, (kv_device *[]){&a.device, &b.device, &c.device}, 3);
        lines l = dump_of(p);
        assert_int_equal(l.n, 5);
        assert_string_equal(l.at[0].op, "rope_table");
        assert_string_equal(l.at[0].device, "b:0");
        assert_string_equal(l.at[2].op, able ? "rope_table" : "copy");
        assert_string_equal(l.at[2].device, "c:0");
        assert_int_equal(kv_plan_crossing_bytes(p), able ? 0 : 2 * sizeof(float));
        kv_plan_destroy(p);
    }
}

/* A store stays where it is, and a segment with memory of another device is refused by the device itself. */
static void test_memory_of_another_device(void **state) {
    (void)state;
    fake a = make_fake("a:0"), b = make_fake("b:0");
    finish_fake(&a), finish_fake(&b);
    kv_op touch = {.name = "touch", .check = check_nothing};
    b.refuses[0] = &touch;
    kv_graph g;
    kv_graph_init(&g);
    int nothing = 0;
    kv_node node = {.op = &touch, .params = &nothing, .writes = &nothing, .home = &b.device};
    g.label = "blk.3";
    kv_graph_add(&g, &node, sizeof nothing);
    expect_refusal(&g, (kv_device *[]){&a.device, &b.device}, 2, "touch (blk.3) is on a:0, its store on b:0");

    kv_device *cpu = NULL;
    assert_int_equal(kv_cpu_device_create(&cpu, 1, 1, KV_CPU_SCALAR), KVANT_OK);
    glu_case c;
    open_glu(&c, &a.device);
    for (size_t i = 0; i < c.graph.nodes.count; i++) c.graph.nodes.at[i]->device = cpu;
    kv_segment s = {.device = cpu, .nodes = c.graph.nodes.at, .n_nodes = (int32_t)c.graph.nodes.count};
    c.graph.nodes.at[0]->out->buffer = &(kv_buffer){.device = cpu};
    assert_int_equal(cpu->prepare(cpu, &s), KVANT_INVALID);
    assert_string_equal(kv_last_error(), "cpu:1: matmul_glu (blk.0 ffn) has its input on a:0");
    kv_graph_clear(&c.graph);
    close_glu(&c);
    cpu->destroy(cpu);
}

/* ---- on the CPU */

static void test_dump_names_kernels(void **state) {
    (void)state;
    kv_device *cpu = NULL;
    assert_int_equal(kv_cpu_device_create(&cpu, 0, 2, KV_CPU_SCALAR), KVANT_OK);
    chain c;
    open_chain(&c, cpu);
    kv_plan *p = plan_of(&c.graph, &cpu, 1);
    lines l = dump_of(p);
    static const char *const kernels[] = {"kv_norm_scalar", "kv_panel_scalar", "kv_panel_scalar",
                                          "kv_glu_gelu_scalar", "kv_panel_scalar"};
    for (int32_t i = 0; i < l.n; i++) {
        assert_string_equal(l.at[i].device, "cpu:0");
        assert_string_equal(l.at[i].kernel, kernels[i % 5]);
    }
    check_overlaps(&l);
    run_plan(p);
    kv_plan_destroy(p);
    close_chain(&c);
    cpu->destroy(cpu);
}

static void test_a_cancelled_run_stops(void **state) {
    (void)state;
    kv_device *cpu = NULL;
    assert_int_equal(kv_cpu_device_create(&cpu, 0, 3, kv_cpu_detect()), KVANT_OK);
    chain c;
    open_chain(&c, cpu);
    kv_plan *p = plan_of(&c.graph, &cpu, 1);
    atomic_bool cancel = true;
    for (int i = 0; i < 500; i++) assert_int_equal(kv_plan_run(p, &cancel), KVANT_CANCELLED);
    run_plan(p);
    kv_plan_destroy(p);
    close_chain(&c);
    cpu->destroy(cpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_device_knows_stays_whole),
        cmocka_unit_test(test_what_it_does_not_know_is_expanded),
        cmocka_unit_test(test_what_cannot_be_expanded_moves),
        cmocka_unit_test(test_weights_do_not_move),
        cmocka_unit_test(test_what_nobody_knows_is_refused_by_name),
        cmocka_unit_test(test_what_moves_gets_its_inputs_copied),
        cmocka_unit_test(test_a_node_follows_its_input),
        cmocka_unit_test(test_failures_of_a_device_are_passed_on),
        cmocka_unit_test(test_shapes_that_do_not_fit),
        cmocka_unit_test(test_scratch_is_shared_by_lifetime),
        cmocka_unit_test(test_sharing_changes_no_result),
        cmocka_unit_test(test_a_store_orders_its_nodes),
        cmocka_unit_test(test_devices_exchange_copies),
        cmocka_unit_test(test_a_run_that_fails_between_devices),
        cmocka_unit_test(test_sources_are_made_where_they_are_read),
        cmocka_unit_test(test_memory_of_another_device),
        cmocka_unit_test(test_dump_names_kernels),
        cmocka_unit_test(test_a_cancelled_run_stops),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
