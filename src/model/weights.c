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
    KV_VEC(move) moves;
    size_t packed_bytes, vector_bytes;
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

static kv_status add_move(loader *l, kv_tensor *to, const kv_gguf_tensor *from, int64_t first_row) {
    return kv_vec_push(&l->moves, ((move){to, from, first_row})) ? KVANT_OK : KVANT_NO_MEMORY;
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
    t->buffer = &l->w->vectors;
    t->offset = l->vector_bytes;
    l->vector_bytes += kv_round_up(kv_tensor_bytes(t), 64);
    return add_move(l, t, from, 0);
}

static size_t offset_in_file(const loader *l, const kv_gguf_tensor *t) {
    return (size_t)((uintptr_t)t->data - (uintptr_t)l->w->mapped.host);
}

/* Rows [first, first + rows) of a matrix that matmul reads. */
static kv_status place_matrix(loader *l, kv_tensor **out, const kv_gguf_tensor *from, int64_t first,
                              int64_t rows) {
    const kv_layout *layout = l->src->device->weight_layout(l->src->device, from->dtype);
    kv_tensor *t = *out = new_tensor(l, from->dtype, layout, rows, from->dims[0]);
    if (!t) return KVANT_NO_MEMORY;
    l->w->bytes_per_token += (int64_t)kv_tensor_bytes(t);
    if (layout == &kv_layout_rows) {
        t->buffer = &l->w->mapped;
        t->offset = offset_in_file(l, from) + (size_t)first * kv_dtype_bytes(from->dtype, t->cols);
        return KVANT_OK;
    }
    t->buffer = &l->w->packed;
    t->offset = l->packed_bytes;
    l->packed_bytes += kv_round_up(kv_tensor_bytes(t), 64);
    return add_move(l, t, from, first);
}

static kv_status want_matrix(loader *l, kv_tensor **out, int32_t layer, const char *name, int64_t cols,
                             int64_t rows) {
    const kv_gguf_tensor *from = find(l, layer, name, "weight");
    if (!from) return missing(l);
    KV_TRY(check_dims(from, cols, rows));
    return place_matrix(l, out, from, 0, rows);
}

/* ---- the tensors of a model ---- */

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

/* The embedding stays in the file unless the output shares it. */
static kv_status want_embedding(loader *l) {
    kv_weights *w = l->w;
    int64_t n_embd = l->src->hparams->n_embd;
    const kv_gguf_tensor *embed = find(l, -1, "token_embd", "weight");
    if (!embed) return missing(l);
    KV_TRY(check_dims(embed, n_embd, embed->dims[1]));
    if (!find(l, -1, "output", "weight")) {
        KV_TRY(place_matrix(l, &w->embed, embed, 0, embed->dims[1]));
        w->output = w->embed;
        return KVANT_OK;
    }
    KV_TRY(want_matrix(l, &w->output, -1, "output", n_embd, embed->dims[1]));
    w->embed = new_tensor(l, embed->dtype, &kv_layout_rows, embed->dims[1], n_embd);
    if (!w->embed) return KVANT_NO_MEMORY;
    w->embed->buffer = &w->mapped;
    w->embed->offset = offset_in_file(l, embed);
    return KVANT_OK;
}

static kv_status want_all(loader *l) {
    const kv_hparams *h = l->src->hparams;
    kv_weights *w = l->w;
    int64_t pairs = h->rope[KV_ROPE_GLOBAL].n_rot / 2;
    KV_TRY(want_embedding(l));
    KV_TRY(want_vector(l, &w->output_norm, -1, "output_norm", "weight", h->n_embd, true));
    KV_TRY(want_vector(l, &w->rope_factors, -1, "rope_freqs", "weight", pairs, false));
    KV_TRY(want_vector(l, &w->rope_factors_long, -1, "rope_factors_long", "weight", pairs, false));
    KV_TRY(want_vector(l, &w->rope_factors_short, -1, "rope_factors_short", "weight", pairs, false));
    w->layers = kv_arena_alloc(&w->arena, (size_t)h->n_layers, sizeof *w->layers);
    if (!w->layers) return KVANT_NO_MEMORY;
    for (int32_t i = 0; i < h->n_layers; i++) KV_TRY(want_layer(l, i));
    return KVANT_OK;
}

/* ---- filling ---- */

static void fill(const move *m, int64_t first, int64_t n) {
    const kv_tensor *t = m->to;
    size_t row_bytes = kv_dtype_bytes(m->from->dtype, t->cols);
    const uint8_t *plain = m->from->data + (size_t)(m->first_row + first) * row_bytes;
    if (t->rows == 1 && t->dtype == KV_FLOAT) {
        m->from->dtype->decode(kv_tensor_data(t), plain, t->cols);
        return;
    }
    kv_layout_pack(t->layout, t->dtype, t->cols, kv_tensor_data(t), plain, first, n);
    kv_pages_release((void *)plain, (size_t)n * row_bytes);
}

typedef struct filling {
    const loader *l;
    int64_t n_items;
    atomic_int_least64_t done;
    atomic_bool cancelled;
} filling;

static int64_t items_of(const move *m) { return (m->to->rows + PACK_ROWS - 1) / PACK_ROWS; }

static void fill_items(void *arg, int32_t thread) {
    filling *f = arg;
    const loader *l = f->l;
    int64_t item = kv_pool_take(l->src->pool), before = 0;
    for (size_t i = 0; i < l->moves.count; i++) {
        const move *m = &l->moves.at[i];
        int64_t n = items_of(m);
        for (; item < before + n && !f->cancelled; item = kv_pool_take(l->src->pool)) {
            int64_t first = (item - before) * PACK_ROWS, left = m->to->rows - first;
            fill(m, first, left < PACK_ROWS ? left : PACK_ROWS);
            double fraction = (double)++f->done / (double)f->n_items;
            if (thread == 0 && l->src->progress && !l->src->progress(l->src->user, fraction))
                f->cancelled = true;
        }
        before += n;
    }
}

static kv_status fill_all(loader *l) {
    kv_device *d = l->src->device;
    KV_TRY(d->alloc(d, &l->w->packed, l->packed_bytes));
    KV_TRY(d->alloc(d, &l->w->vectors, l->vector_bytes));
    filling f = {.l = l};
    for (size_t i = 0; i < l->moves.count; i++) f.n_items += items_of(&l->moves.at[i]);
    kv_pool_run(l->src->pool, fill_items, &f);
    return f.cancelled ? kv_fail(KVANT_CANCELLED, "loading was cancelled") : KVANT_OK;
}

/* NaN or infinite norms, biases and rope factors make every logit NaN: refused by name here. */
static kv_status check_vectors(const loader *l) {
    for (size_t i = 0; i < l->moves.count; i++) {
        const move *m = &l->moves.at[i];
        const float *x = kv_tensor_data(m->to);
        for (int64_t c = 0; m->to->buffer == &l->w->vectors && c < m->to->cols; c++)
            if (!isfinite(x[c]))
                return kv_fail(KVANT_FORMAT, "tensor %s: number %lld is not finite", m->from->name,
                               (long long)c);
    }
    return KVANT_OK;
}

kv_status kv_weights_load(kv_weights *w, const kv_weights_source *source) {
    *w = (kv_weights){0};
    w->mapped =
        (kv_buffer){.device = source->device, .host = (uint8_t *)kv_gguf_tensor_at(source->gguf, 0)->data};
    loader l = {.w = w, .src = source};
    kv_status status;
    KV_TRY_DONE(want_all(&l));
    KV_TRY_DONE(fill_all(&l));
    KV_TRY_DONE(check_vectors(&l));
done:
    kv_vec_clear(&l.moves);
    if (status) kv_weights_clear(w);
    return status;
}

void kv_weights_clear(kv_weights *w) {
    if (w->packed.device) w->packed.device->release(&w->packed);
    if (w->vectors.device) w->vectors.device->release(&w->vectors);
    kv_arena_clear(&w->arena);
    *w = (kv_weights){0};
}
