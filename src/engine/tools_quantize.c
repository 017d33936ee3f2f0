/* tools_quantize.c: one GGUF file into another, tensor by tensor. A tensor goes through f32 in stripes of
 * rows that the threads take side by side, so that memory does not grow with the model; vectors and misfits
 * are copied. */
#include "base/cpu.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "engine/engine.h"
#include "gguf/gguf.h"
#include "kvant_tools.h"

#include <inttypes.h>
#include <string.h>

enum { STRIPE_BYTES = 4 << 20 }; /* of f32, for each thread */

typedef struct quantizer {
    kvant_quantize_options options;
    const kv_dtype *type, *output_type, *embedding_type; /* output_type NULL: stays as it is */
    kv_gguf *in;
    kv_gguf_writer *out;
    kv_pool *pool;
    float *numbers; /* a stripe for each thread */
    uint8_t *coded; /* the same, encoded */
    double bytes_done;
    kvant_quantize_result result;
} quantizer;

/* ---- which type a tensor gets ---- */

const char *kvant_quantize_type(int32_t i) {
    for (int32_t d = 0; d < kv_dtype_count(); d++) {
        const kv_dtype *dtype = kv_dtype_at(d);
        if (dtype->gguf_id >= 0 && dtype->encode && i-- == 0) return dtype->name;
    }
    return NULL;
}

static kv_status find_type(const kv_dtype **out, const char *name) {
    const kv_dtype *d = name ? kv_dtype_by_name(name) : NULL;
    if (d && d->gguf_id >= 0 && d->encode) {
        *out = d;
        return KVANT_OK;
    }
    if (d && d->gguf_id < 0)
        return kv_fail(KVANT_INVALID, "type '%s' is not a type of GGUF files, which have no number for it",
                       name);
    char names[256] = "";
    const char *known;
    for (int32_t i = 0; (known = kvant_quantize_type(i)); i++) {
        size_t n = strlen(names);
        if (n + strlen(known) + 2 < sizeof names) strcat(strcat(names, " "), known);
    }
    return kv_fail(KVANT_INVALID, "type '%s' cannot be written; these can:%s", name ? name : "", names);
}

static double bits(const kv_dtype *d) { return 8.0 * d->block_bytes / d->block_elems; }

static kv_status choose_types(quantizer *q) {
    const kvant_quantize_options *o = &q->options;
    KV_TRY(find_type(&q->type, o->type));
    q->embedding_type = q->type;
    if (o->embedding_type) KV_TRY(find_type(&q->embedding_type, o->embedding_type));
    if (o->keep_output) return KVANT_OK;
    q->output_type = bits(q->type) < bits(&kv_dtype_q8_0) ? &kv_dtype_q8_0 : q->type;
    return o->output_type ? find_type(&q->output_type, o->output_type) : KVANT_OK;
}

/* The type that is asked for, NULL where the tensor is to stay as it is. */
static const kv_dtype *wanted_type(const quantizer *q, const kv_gguf_tensor *t) {
    bool is_embedding = strcmp(t->name, "token_embd.weight") == 0;
    bool is_tied = !kv_gguf_find_tensor(q->in, "output.weight");
    if (t->n_dims < 2) return NULL;
    if (strcmp(t->name, "output.weight") == 0 || (is_embedding && is_tied)) return q->output_type;
    return is_embedding ? q->embedding_type : q->type;
}

static int64_t n_rows(const kv_gguf_tensor *t) { return t->dims[1] * t->dims[2] * t->dims[3]; }
static int64_t n_numbers(const kv_gguf_tensor *t) { return t->dims[0] * n_rows(t); }

static bool fits(const kv_dtype *type, const kv_gguf_tensor *t) {
    return t->dims[0] % type->block_elems == 0;
}

/* The type that it gets. */
static const kv_dtype *given_type(const quantizer *q, const kv_gguf_tensor *t) {
    const kv_dtype *type = wanted_type(q, t);
    return type && fits(type, t) ? type : t->dtype;
}

/* ---- the head of the file ---- */

static bool is_copied(const char *key) {
    static const char *const dropped[] = {"general.file_type", "split.no", "split.count",
                                          "split.tensors.count"};
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
        if (strcmp(key, dropped[i]) == 0) return false;
    return true;
}

static kv_status write_head(quantizer *q) {
    for (int64_t i = 0; i < kv_gguf_n_values(q->in); i++) {
        const kv_gguf_value *v = kv_gguf_value_at(q->in, i);
        if (is_copied(v->key)) KV_TRY(kv_gguf_write_value(q->out, v));
    }
    for (int64_t i = 0; i < kv_gguf_n_tensors(q->in); i++) {
        const kv_gguf_tensor *t = kv_gguf_tensor_at(q->in, i);
        KV_TRY(kv_gguf_declare_tensor(q->out, t->name, given_type(q, t), t->n_dims, t->dims));
    }
    return KVANT_OK;
}

/* ---- the tensors ---- */

/* Rows [first, first + n) of a tensor, spread over the threads: `stripe` rows each. */
typedef struct job {
    const quantizer *q;
    const kv_gguf_tensor *tensor;
    const kv_dtype *type;
    int64_t first, n, stripe;
} job;

static void convert_stripe(void *arg, int32_t thread) {
    const job *j = arg;
    int64_t cols = j->tensor->dims[0], begin = thread * j->stripe, end = begin + j->stripe;
    if (end > j->n) end = j->n;
    size_t row_bytes = kv_dtype_bytes(j->tensor->dtype, cols);
    float *numbers = j->q->numbers + begin * cols;
    if (begin >= end) return;
    j->tensor->dtype->decode(numbers, j->tensor->data + (size_t)(j->first + begin) * row_bytes,
                             (end - begin) * cols);
    j->type->encode(j->q->coded + kv_dtype_bytes(j->type, begin * cols), numbers, (end - begin) * cols);
}

static kv_status allocate_stripes(quantizer *q, int64_t cells, const kv_dtype *type) {
    kv_free(q->numbers);
    kv_free(q->coded);
    q->numbers = kv_alloc_aligned((size_t)cells, sizeof *q->numbers);
    q->coded = q->numbers ? kv_alloc_aligned(kv_dtype_bytes(type, cells), 1) : NULL;
    return q->coded ? KVANT_OK : KVANT_NO_MEMORY;
}

static kv_status report_progress(quantizer *q, size_t bytes) {
    q->bytes_done += (double)bytes;
    const kvant_quantize_options *o = &q->options;
    double all = (double)kv_gguf_file_bytes(q->in), fraction = q->bytes_done / (all > 0 ? all : 1);
    if (!o->progress || o->progress(o->user, fraction < 1 ? fraction : 1)) return KVANT_OK;
    return kv_fail(KVANT_CANCELLED, "cancelled");
}

static kv_status convert_tensor(quantizer *q, const kv_gguf_tensor *t, const kv_dtype *type) {
    int64_t cols = t->dims[0], rows = n_rows(t);
    int64_t stripe = STRIPE_BYTES / (int64_t)sizeof(float) / cols, n_threads = kv_pool_size(q->pool);
    if (stripe < 1) stripe = 1;
    if (stripe > (rows + n_threads - 1) / n_threads) stripe = (rows + n_threads - 1) / n_threads;
    KV_TRY(allocate_stripes(q, stripe * n_threads * cols, type));
    for (int64_t first = 0; first < rows; first += stripe * n_threads) {
        int64_t n = rows - first < stripe * n_threads ? rows - first : stripe * n_threads;
        job j = {q, t, type, first, n, stripe};
        kv_pool_run(q->pool, convert_stripe, &j);
        KV_TRY(kv_gguf_write_data(q->out, q->coded, kv_dtype_bytes(type, n * cols)));
        KV_TRY(report_progress(q, kv_dtype_bytes(t->dtype, n * cols)));
    }
    return KVANT_OK;
}

static kv_status write_tensor(quantizer *q, const kv_gguf_tensor *t) {
    const kv_dtype *wanted = wanted_type(q, t), *type = given_type(q, t);
    if (wanted && !fits(wanted, t)) {
        kv_log(KVANT_LOG_INFO, "tensor %s stays %s: %" PRId64 " columns, not a multiple of %d (%s block)",
               t->name, t->dtype->name, t->dims[0], wanted->block_elems, wanted->name);
        q->result.n_misfits++;
    }
    if (type == t->dtype) {
        q->result.n_kept++;
        KV_TRY(kv_gguf_write_data(q->out, t->data, t->bytes));
        return report_progress(q, t->bytes);
    }
    q->result.n_converted++;
    q->result.n_requantized += t->dtype->block_elems > 1;
    KV_TRY(convert_tensor(q, t, type));
    kv_gguf_release_tensor(q->in, t);
    return KVANT_OK;
}

static kv_status write_all(quantizer *q, const char *out_path) {
    KV_TRY(kv_gguf_writer_open(&q->out, out_path));
    KV_TRY(write_head(q));
    for (int64_t i = 0; i < kv_gguf_n_tensors(q->in); i++) {
        const kv_gguf_tensor *t = kv_gguf_tensor_at(q->in, i);
        KV_TRY(write_tensor(q, t));
        q->result.bytes_in += (int64_t)t->bytes;
        q->result.bytes_out += (int64_t)kv_dtype_bytes(given_type(q, t), n_numbers(t));
    }
    return kv_gguf_writer_commit(q->out);
}

kvant_status kvant_quantize(const char *in_path, const char *out_path, const kvant_quantize_options *options,
                            kvant_quantize_result *result) {
    quantizer q = {.options = KVANT_QUANTIZE_OPTIONS_INIT};
    KV_TRY(kv_take_struct(&q.options, sizeof q.options, options, "kvant_quantize_options"));
    int32_t n_threads = q.options.n_threads;
    if (n_threads < 0 || n_threads > 1024)
        return kv_fail(KVANT_INVALID, "%d threads, not from 0 to 1024", n_threads);
    kv_status status = choose_types(&q);
    if (!status) status = kv_pool_create(&q.pool, n_threads ? n_threads : kv_cpu_count());
    if (!status) status = kv_gguf_open(&q.in, in_path);
    if (!status) status = write_all(&q, out_path);
    if (!status && result) kv_give_struct(result, &q.result, sizeof q.result);
    kv_gguf_writer_close(q.out);
    kv_gguf_close(q.in);
    kv_pool_destroy(q.pool);
    kv_free(q.numbers);
    kv_free(q.coded);
    return status;
}
