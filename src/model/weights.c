/* weights.c: finding, checking and packing. First every tensor is found and given a place (nothing is read),
 * then the places are filled by all threads of the pool. */
#include "model/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PACK_ROWS = 256 };

/* A tensor with a place: rows of the file's tensor on their way into it. */
typedef struct move {
    kv_tensor *to;
    const kv_gguf_tensor *from;
    int64_t first_row; /* of `from` */
} move;

typedef struct loader {
    kv_weights *w;
    const kv_weights_source *src;
    kv_weights_shard *shard; /* where the tensors wanted next go; its buffers grow by their sizes */
    KV_VEC(move) matrices;
    KV_VEC(move) vectors;
    char name[64];
} loader;

/* ---- finding ---- */

static const kv_gguf_tensor *find(loader *l, int32_t layer, const char *name, const char *suffix) {
    if (layer < 0)
        snprintf(l->name, sizeof l->name, "%s.%s", name, suffix);
    else
        snprintf(l->name, sizeof l->name, "blk.%d.%s.%s", layer, name, suffix);
    return kv_gguf_find_tensor(l->src->gguf, l->name);
}

static kv_status missing(const loader *l) { return kv_fail(KVANT_FORMAT, "tensor %s is missing", l->name); }

static kv_status check_dims(const kv_gguf_tensor *t, int64_t cols, int64_t rows) {
    bool flat = t->dims[2] == 1 && t->dims[3] == 1;
    if (flat && t->dims[0] == cols && t->dims[1] == rows) return KVANT_OK;
    return kv_fail(KVANT_FORMAT, "tensor %s: %lld x %lld (x %lld x %lld), expected %lld x %lld", t->name,
                   (long long)t->dims[0], (long long)t->dims[1], (long long)t->dims[2], (long long)t->dims[3],
                   (long long)cols, (long long)rows);
}

/* As f32. NaN or infinite norms, biases and rope factors make every logit NaN: refused by name here. */
static kv_status read_vector(float *x, const kv_gguf_tensor *from, int64_t n) {
    from->dtype->decode(x, from->data, n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return kv_fail(KVANT_FORMAT, "tensor %s: number %lld is not finite", from->name, (long long)i);
    return KVANT_OK;
}

/* Memory behind what the buffer holds so far; the buffer itself is allocated when all is known. */
static void reserve(loader *l, kv_tensor *t, kv_buffer *buffer) {
    t->buffer = buffer;
    t->offset = buffer->bytes;
    buffer->bytes += kv_round_up(kv_tensor_bytes(t), 64);
    l->shard->bytes += (int64_t)kv_tensor_bytes(t);
}

static kv_tensor *new_tensor(loader *l, const kv_dtype *dtype, const kv_layout *layout, int64_t rows,
                             int64_t cols) {
    kv_tensor *t = kv_arena_alloc(&l->w->arena, 1, sizeof *t);
    if (t) *t = (kv_tensor){.dtype = dtype, .layout = layout, .rows = rows, .cols = cols};
    return t;
}

/* A vector of n numbers, copied to f32. */
static kv_status want_vector(loader *l, kv_tensor **out, int32_t layer, const char *name, const char *suffix,
                             int64_t n, bool required) {
    const kv_gguf_tensor *from = find(l, layer, name, suffix);
    if (!from) return required ? missing(l) : KVANT_OK;
    KV_TRY(check_dims(from, n, 1));
    kv_tensor *t = *out = new_tensor(l, KV_FLOAT, &kv_layout_rows, 1, n);
    if (!t) return KVANT_NO_MEMORY;
    reserve(l, t, &l->shard->vectors);
    return kv_vec_push(&l->vectors, ((move){t, from, 0})) ? KVANT_OK : KVANT_NO_MEMORY;
}

/* Plain rows where they are in the file, for a device that can read them there. */
static kv_status borrow(loader *l, kv_tensor *t, const kv_gguf_tensor *from, int64_t first) {
    kv_device *d = l->shard->device;
    kv_buffer *b = kv_arena_alloc(&l->w->arena, 1, sizeof *b);
    if (!b || !kv_vec_push(&l->shard->borrowed, b)) return KVANT_NO_MEMORY;
    t->buffer = b;
    l->shard->bytes += (int64_t)kv_tensor_bytes(t);
    return d->borrow(d, b, from->data + (size_t)first * kv_dtype_bytes(t->dtype, t->cols),
                     kv_tensor_bytes(t));
}

/* Rows [first, first + rows) of a matrix in a layout. */
static kv_status place_rows(loader *l, kv_tensor **out, const kv_gguf_tensor *from, int64_t first,
                            int64_t rows, const kv_layout *layout) {
    kv_tensor *t = *out = new_tensor(l, from->dtype, layout, rows, from->dims[0]);
    if (!t) return KVANT_NO_MEMORY;
    if (layout == &kv_layout_rows && l->shard->device->borrow) return borrow(l, t, from, first);
    reserve(l, t, &l->shard->matrices);
    return kv_vec_push(&l->matrices, ((move){t, from, first})) ? KVANT_OK : KVANT_NO_MEMORY;
}

/* The same of one that matmul reads, in the layout that the device likes best. */
static kv_status place_matrix(loader *l, kv_tensor **out, const kv_gguf_tensor *from, int64_t first,
                              int64_t rows) {
    kv_device *d = l->shard->device;
    KV_TRY(place_rows(l, out, from, first, rows, d->weight_layout(d, from->dtype)));
    l->w->bytes_per_token += (int64_t)kv_tensor_bytes(*out);
    return KVANT_OK;
}

static kv_status want_matrix(loader *l, kv_tensor **out, int32_t layer, const char *name, int64_t cols,
                             int64_t rows) {
    const kv_gguf_tensor *from = find(l, layer, name, "weight");
    if (!from) return missing(l);
    KV_TRY(check_dims(from, cols, rows));
    return place_matrix(l, out, from, 0, rows);
}

/* ---- the tensors of a model ---- */

int32_t kv_split_device(const kv_split *s, int32_t layer, int32_t n_layers) {
    int64_t total = 0, sum = 0;
    for (int32_t i = 0; i < s->n_devices; i++) total += s->shares ? s->shares[i] : 1;
    for (int32_t i = 0; i + 1 < s->n_devices; i++) {
        sum += s->shares ? s->shares[i] : 1;
        if (layer < (2 * n_layers * sum + total) / (2 * total)) return i;
    }
    return s->n_devices - 1;
}

static kv_weights_shard *shard_of(const loader *l, int32_t layer) {
    return &l->w->shards[kv_split_device(&l->src->split, layer, l->src->hparams->n_layers)];
}

static kv_status want_qkv(loader *l, kv_layer_weights *w, int32_t i) {
    const kv_hparams *h = l->src->hparams;
    const kv_layer_hparams *layer = &h->layers[i];
    int64_t q = (int64_t)layer->n_heads * h->k_dim, k = (int64_t)layer->n_kv_heads * h->k_dim,
            v = (int64_t)layer->n_kv_heads * h->v_dim;
    const kv_gguf_tensor *fused = find(l, i, "attn_qkv", "weight");
    if (fused) {
        KV_TRY(check_dims(fused, h->n_embd, q + k + v));
        KV_TRY(place_matrix(l, &w->q, fused, 0, q));
        KV_TRY(place_matrix(l, &w->k, fused, q, k));
        KV_TRY(place_matrix(l, &w->v, fused, q + k, v));
    } else {
        KV_TRY(want_matrix(l, &w->q, i, "attn_q", h->n_embd, q));
        KV_TRY(want_matrix(l, &w->k, i, "attn_k", h->n_embd, k));
        KV_TRY(want_matrix(l, &w->v, i, "attn_v", h->n_embd, v));
    }
    bool biased = l->src->arch->tensors & KV_ARCH_QKV_BIAS, normed = l->src->arch->tensors & KV_ARCH_QK_NORM;
    KV_TRY(want_vector(l, &w->q_bias, i, "attn_q", "bias", q, biased));
    KV_TRY(want_vector(l, &w->k_bias, i, "attn_k", "bias", k, biased));
    KV_TRY(want_vector(l, &w->v_bias, i, "attn_v", "bias", v, biased));
    KV_TRY(want_vector(l, &w->q_norm, i, "attn_q_norm", "weight", h->k_dim, normed));
    return want_vector(l, &w->k_norm, i, "attn_k_norm", "weight", h->k_dim, normed);
}

static kv_status want_ffn(loader *l, kv_layer_weights *w, int32_t i) {
    int64_t n_embd = l->src->hparams->n_embd, n_ff = l->src->hparams->layers[i].n_ff;
    const kv_gguf_tensor *gate = find(l, i, "ffn_gate", "weight");
    if (!gate) { /* gate and up in one matrix, or a file that lacks one: then the shape says so */
        const kv_gguf_tensor *fused = find(l, i, "ffn_up", "weight");
        if (!fused) return missing(l);
        KV_TRY(check_dims(fused, n_embd, 2 * n_ff));
        KV_TRY(place_matrix(l, &w->gate, fused, 0, n_ff));
        KV_TRY(place_matrix(l, &w->up, fused, n_ff, n_ff));
    } else {
        KV_TRY(want_matrix(l, &w->gate, i, "ffn_gate", n_embd, n_ff));
        KV_TRY(want_matrix(l, &w->up, i, "ffn_up", n_embd, n_ff));
    }
    KV_TRY(want_vector(l, &w->gate_bias, i, "ffn_gate", "bias", n_ff, false));
    KV_TRY(want_vector(l, &w->up_bias, i, "ffn_up", "bias", n_ff, false));
    KV_TRY(want_vector(l, &w->down_bias, i, "ffn_down", "bias", n_embd, false));
    return want_matrix(l, &w->down, i, "ffn_down", n_ff, n_embd);
}

static kv_status want_layer(loader *l, int32_t i) {
    const kv_hparams *h = l->src->hparams;
    kv_layer_weights *w = &l->w->layers[i];
    bool post = l->src->arch->tensors & KV_ARCH_POST_NORM;
    KV_TRY(want_vector(l, &w->attn_norm, i, "attn_norm", "weight", h->n_embd, true));
    KV_TRY(want_qkv(l, w, i));
    KV_TRY(
        want_matrix(l, &w->attn_out, i, "attn_output", (int64_t)h->layers[i].n_heads * h->v_dim, h->n_embd));
    KV_TRY(want_vector(l, &w->attn_out_bias, i, "attn_output", "bias", h->n_embd, false));
    KV_TRY(want_vector(l, &w->attn_post_norm, i, "post_attention_norm", "weight", h->n_embd, post));
    KV_TRY(want_vector(l, &w->ffn_norm, i, "ffn_norm", "weight", h->n_embd, true));
    KV_TRY(want_ffn(l, w, i));
    return want_vector(l, &w->ffn_post_norm, i, "post_ffw_norm", "weight", h->n_embd, post);
}

/* The embedding beside the first layer in plain rows, unless the output beside the last shares it there. */
static kv_status want_embedding(loader *l) {
    kv_weights *w = l->w;
    int64_t n_embd = l->src->hparams->n_embd;
    const kv_gguf_tensor *embed = find(l, -1, "token_embd", "weight");
    if (!embed) return missing(l);
    KV_TRY(check_dims(embed, n_embd, embed->dims[1]));
    bool tied = !find(l, -1, "output", "weight");
    l->shard = shard_of(l, l->src->hparams->n_layers - 1);
    if (tied)
        KV_TRY(place_matrix(l, &w->output, embed, 0, embed->dims[1]));
    else
        KV_TRY(want_matrix(l, &w->output, -1, "output", n_embd, embed->dims[1]));
    bool shared = tied && l->shard == shard_of(l, 0);
    l->shard = shard_of(l, 0);
    w->embed = w->output;
    return shared ? KVANT_OK : place_rows(l, &w->embed, embed, 0, embed->dims[1], &kv_layout_rows);
}

/* Factors that the host computes frequencies from. */
static kv_status want_factors(loader *l, const float **out, const char *name, const char *suffix) {
    int64_t n = l->src->hparams->rope[KV_ROPE_GLOBAL].n_rot / 2;
    const kv_gguf_tensor *from = find(l, -1, name, suffix);
    if (!from) return KVANT_OK;
    KV_TRY(check_dims(from, n, 1));
    float *x = kv_arena_alloc(&l->w->arena, (size_t)n, sizeof *x);
    if (!x) return KVANT_NO_MEMORY;
    *out = x;
    return read_vector(x, from, n);
}

static kv_status want_layers(loader *l) {
    const kv_hparams *h = l->src->hparams;
    l->w->layers = kv_arena_alloc(&l->w->arena, (size_t)h->n_layers, sizeof *l->w->layers);
    if (!l->w->layers) return KVANT_NO_MEMORY;
    for (int32_t i = 0; i < h->n_layers; i++) {
        l->shard = shard_of(l, i);
        l->w->layers[i].device = l->shard->device;
        KV_TRY(want_layer(l, i));
    }
    return KVANT_OK;
}

static kv_status want_all(loader *l) {
    const kv_split *split = &l->src->split;
    kv_weights *w = l->w;
    w->shards = kv_arena_alloc(&w->arena, (size_t)split->n_devices, sizeof *w->shards);
    if (!w->shards) return KVANT_NO_MEMORY;
    w->n_shards = split->n_devices;
    for (int32_t i = 0; i < w->n_shards; i++) w->shards[i].device = split->devices[i];
    KV_TRY(want_embedding(l));
    KV_TRY(want_factors(l, &w->rope_factors, "rope_freqs", "weight"));
    KV_TRY(want_factors(l, &w->rope_factors_long, "rope_factors_long", "weight"));
    KV_TRY(want_factors(l, &w->rope_factors_short, "rope_factors_short", "weight"));
    KV_TRY(want_layers(l)); /* and then beside the last */
    return want_vector(l, &w->output_norm, -1, "output_norm", "weight", l->src->hparams->n_embd, true);
}

/* ---- filling ---- */

static kv_status fill_vector(const move *m) {
    kv_range to = kv_tensor_range(m->to);
    float *x = kv_alloc(1, to.bytes);
    if (!x) return KVANT_NO_MEMORY;
    kv_status status = read_vector(x, m->from, m->to->cols);
    if (!status) status = to.buffer->device->upload(to, x);
    kv_free(x);
    return status;
}

/* Whole tiles of rows, through memory of the host where the device's is out of reach. */
static kv_status upload_rows(const kv_tensor *t, const void *plain, int64_t first, int64_t n) {
    kv_device *d = t->buffer->device;
    int64_t tile = t->layout->tile;
    size_t tile_bytes = kv_layout_tile_bytes(t->layout, t->dtype, t->cols);
    kv_range to = {t->buffer, t->offset + (size_t)(first / tile) * tile_bytes,
                   (size_t)((n + tile - 1) / tile) * tile_bytes};
    void *packed = kv_alloc(1, to.bytes);
    if (!packed) return KVANT_NO_MEMORY;
    kv_layout_pack(t->layout, t->dtype, t->cols, packed, plain, 0, n);
    kv_status status = d->upload(to, packed);
    kv_free(packed);
    return status;
}

static kv_status fill(const move *m, int64_t first, int64_t n) {
    const kv_tensor *t = m->to;
    size_t row_bytes = kv_dtype_bytes(m->from->dtype, t->cols);
    const uint8_t *plain = m->from->data + (size_t)(m->first_row + first) * row_bytes;
    if (t->buffer->host)
        kv_layout_pack(t->layout, t->dtype, t->cols, t->buffer->host + t->offset, plain, first, n);
    else
        KV_TRY(upload_rows(t, plain, first, n));
    kv_pages_release((void *)plain, (size_t)n * row_bytes);
    return KVANT_OK;
}

typedef struct filling {
    const loader *l;
    int64_t n_items;
    atomic_int_least64_t done;
    _Atomic kv_status status; /* of what failed, or KVANT_CANCELLED */
} filling;

static int64_t items_of(const move *m) { return (m->to->rows + PACK_ROWS - 1) / PACK_ROWS; }

static void fill_item(filling *f, const move *m, int64_t item, bool reports) {
    const kv_weights_source *src = f->l->src;
    int64_t first = item * PACK_ROWS, left = m->to->rows - first;
    kv_status status = fill(m, first, left < PACK_ROWS ? left : PACK_ROWS);
    double fraction = (double)++f->done / (double)f->n_items;
    if (reports && src->progress && !src->progress(src->user, fraction)) status = KVANT_CANCELLED;
    if (status) f->status = status;
}

static void fill_items(void *arg, int32_t thread) {
    filling *f = arg;
    const loader *l = f->l;
    int64_t item = kv_pool_take(l->src->pool), before = 0;
    for (size_t i = 0; i < l->matrices.count; i++) {
        const move *m = &l->matrices.at[i];
        int64_t n = items_of(m);
        for (; item < before + n && !f->status; item = kv_pool_take(l->src->pool))
            fill_item(f, m, item - before, thread == 0);
        before += n;
    }
}

/* Allocates what was reserved. */
static kv_status allocate(kv_device *d, kv_buffer *buffer) {
    size_t bytes = buffer->bytes;
    buffer->bytes = 0;
    return bytes ? d->alloc(d, buffer, bytes) : KVANT_OK;
}

static kv_status fill_all(loader *l) {
    for (int32_t i = 0; i < l->w->n_shards; i++) {
        kv_weights_shard *s = &l->w->shards[i];
        KV_TRY(allocate(s->device, &s->matrices));
        KV_TRY(allocate(s->device, &s->vectors));
    }
    for (size_t i = 0; i < l->vectors.count; i++) KV_TRY(fill_vector(&l->vectors.at[i]));
    filling f = {.l = l};
    for (size_t i = 0; i < l->matrices.count; i++) f.n_items += items_of(&l->matrices.at[i]);
    kv_pool_run(l->src->pool, fill_items, &f);
    if (f.status == KVANT_CANCELLED) return kv_fail(f.status, "loading was cancelled");
    return f.status ? kv_fail(f.status, "a device did not take its weights") : KVANT_OK;
}

kv_status kv_weights_load(kv_weights *w, const kv_weights_source *source) {
    *w = (kv_weights){0};
    loader l = {.w = w, .src = source};
    kv_status status = want_all(&l);
    if (!status) status = fill_all(&l);
    kv_vec_clear(&l.matrices);
    kv_vec_clear(&l.vectors);
    if (status) kv_weights_clear(w);
    return status;
}

static void clear_shard(kv_weights_shard *s) {
    if (s->matrices.device) s->device->release(&s->matrices);
    if (s->vectors.device) s->device->release(&s->vectors);
    for (size_t i = 0; i < s->borrowed.count; i++)
        if (s->borrowed.at[i]->device) s->device->release(s->borrowed.at[i]);
    kv_vec_clear(&s->borrowed);
}

void kv_weights_clear(kv_weights *w) {
    for (int32_t i = 0; i < w->n_shards; i++) clear_shard(&w->shards[i]);
    kv_arena_clear(&w->arena);
    *w = (kv_weights){0};
}
