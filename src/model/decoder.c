/* decoder.c: the decoder block that all architectures share: norm, attention, norm, gated feed-forward, each
 * added to the stream, with whatever optional parts the layer's weights have.
 *
 *     x += post_norm(attn_out . attend(q_norm(q), cache <- k_norm(k), v))      q, k, v = norm(x) . W (+ bias)
 *     x += post_norm(down . (act(gate . h) * (up . h)))                        h = norm(x)
 */
#include "model/decoder.h"

#include "op/attend.h"
#include "op/cache_write.h"
#include "op/embed.h"
#include "op/matmul.h"
#include "op/norm.h"
#include "op/rope_table.h"
#include "op/select.h"

#include <stdio.h>

typedef struct block {
    const kv_forward *f;
    kv_graph *g;
    const kv_hparams *h;
    const kv_layer_hparams *layer;
    const kv_layer_weights *w;
    kv_tensor *rope_table;
    int32_t index;
} block;

/* What the activations in front of these weights should be coded as. */
static const kv_dtype *act_for(const kv_forward *f, const kv_tensor *a, const kv_tensor *b,
                               const kv_tensor *c) {
    const kv_tensor *weights[] = {a, b, c};
    for (int i = 0; i < 3; i++) {
        const kv_tensor *w = weights[i];
        if (w && (!f->act || !w->dtype->act_8bit || w->cols % f->act->block_elems)) return KV_FLOAT;
    }
    return f->act;
}

static kv_tensor *plain_matmul(kv_graph *g, kv_tensor *x, kv_tensor *w, kv_tensor *bias,
                               kv_tensor *residual) {
    return kv_matmul(g, &(kv_matmul_params){0}, x, w, bias, residual, KV_FLOAT);
}

static kv_tensor *whole_norm(const block *b, kv_tensor *x, kv_tensor *weight, kv_tensor *residual,
                             const kv_dtype *out) {
    return kv_norm(b->g, &(kv_norm_params){b->h->norm_eps, b->h->n_embd}, x, weight, residual, out);
}

static kv_tensor *head_norm(const block *b, kv_tensor *x, kv_tensor *weight) {
    return weight ? kv_norm(b->g, &(kv_norm_params){b->h->norm_eps, b->h->k_dim}, x, weight, NULL, KV_FLOAT)
                  : x;
}

/* x + y, y through its norm if it has one: then `y` must come without the residual. */
static kv_tensor *project(const block *b, kv_tensor *in, kv_tensor *w, kv_tensor *bias, kv_tensor *post_norm,
                          kv_tensor *x) {
    kv_tensor *y = plain_matmul(b->g, in, w, bias, post_norm ? NULL : x);
    return post_norm ? whole_norm(b, y, post_norm, x, KV_FLOAT) : y;
}

static kv_tensor *attention(const block *b, kv_tensor *x) {
    const kv_layer_weights *w = b->w;
    const kv_rope *rope = &b->f->ropes[b->layer->rope];
    kv_store *store = kv_cache_store(b->f->cache, b->index);
    const kv_batch_view *batch = kv_cache_batch(b->f->cache, kv_cache_group(b->f->cache, b->index));
    kv_tensor *h = whole_norm(b, x, w->attn_norm, NULL, act_for(b->f, w->q, w->k, w->v));
    kv_tensor *q = plain_matmul(b->g, h, w->q, w->q_bias, NULL);
    kv_tensor *k = plain_matmul(b->g, h, w->k, w->k_bias, NULL);
    kv_tensor *v = plain_matmul(b->g, h, w->v, w->v_bias, NULL);
    q = head_norm(b, q, w->q_norm);
    k = head_norm(b, k, w->k_norm);
    kv_cache_write(b->g, &(kv_cache_write_params){rope, store, batch}, k, v, b->rope_table);
    kv_attend_params p = {.rope = rope,
                          .store = store,
                          .batch = batch,
                          .n_heads = b->layer->n_heads,
                          .scale = b->h->attn_scale,
                          .softcap = b->h->attn_softcap,
                          .window = b->layer->window,
                          .act = b->f->act};
    kv_tensor *mixed = kv_attend(b->g, &p, q, b->rope_table, act_for(b->f, w->attn_out, NULL, NULL));
    return project(b, mixed, w->attn_out, w->attn_out_bias, w->attn_post_norm, x);
}

static kv_tensor *feed_forward(const block *b, kv_tensor *x) {
    const kv_layer_weights *w = b->w;
    kv_glu_params act = {b->h->act};
    const kv_dtype *down_act = act_for(b->f, w->down, NULL, NULL);
    kv_tensor *h = whole_norm(b, x, w->ffn_norm, NULL, act_for(b->f, w->gate, w->up, NULL)), *gated;
    if (w->gate_bias || w->up_bias) {
        kv_tensor *gate = plain_matmul(b->g, h, w->gate, w->gate_bias, NULL);
        gated = kv_glu(b->g, &act, gate, plain_matmul(b->g, h, w->up, w->up_bias, NULL), down_act);
    } else {
        gated = kv_matmul_glu(b->g, &act, h, w->gate, w->up, down_act);
    }
    return project(b, gated, w->down, w->down_bias, w->ffn_post_norm, x);
}

/* One table for each way of rotating in each group of layers, made where the first layer needs it. */
static kv_tensor **find_rope_table(const kv_forward *f, kv_tensor **tables, int32_t layer) {
    return &tables[kv_cache_group(f->cache, layer) * KV_N_ROPES +
                   (int32_t)f->model->hparams.layers[layer].rope];
}

static kv_tensor **make_rope_tables(const kv_forward *f) {
    size_t n = (size_t)kv_cache_n_groups(f->cache) * KV_N_ROPES;
    kv_tensor **tables = kv_arena_alloc(&f->graph->arena, n, sizeof(kv_tensor *));
    if (!tables) f->graph->status = KVANT_NO_MEMORY;
    for (int32_t i = 0; tables && i < f->model->hparams.n_layers; i++) {
        kv_tensor **table = find_rope_table(f, tables, i);
        kv_rope_table_params p = {&f->ropes[f->model->hparams.layers[i].rope],
                                  kv_cache_angles(f->cache, kv_cache_group(f->cache, i))};
        if (!*table && p.rope->n_rot) *table = kv_rope_table(f->graph, &p, f->n_table_rows);
    }
    return tables;
}

static const char *layer_label(kv_graph *g, int32_t layer) {
    char text[24];
    int n = snprintf(text, sizeof text, "blk.%d", layer);
    const char *label = kv_arena_strndup(&g->arena, text, (size_t)n);
    return label ? label : "blk";
}

static kv_tensor *logits(const kv_forward *f, kv_tensor *x) {
    const kv_weights *w = &f->model->weights;
    const kv_hparams *h = &f->model->hparams;
    if (!f->n_outputs) return NULL;
    f->graph->label = "output";
    kv_tensor *rows = kv_select(f->graph, &(kv_select_params){f->output_rows}, x, f->n_outputs);
    kv_norm_params norm = {h->norm_eps, h->n_embd};
    rows = kv_norm(f->graph, &norm, rows, w->output_norm, NULL, act_for(f, w->output, NULL, NULL));
    return kv_matmul(f->graph, &(kv_matmul_params){h->logit_softcap}, rows, w->output, NULL, NULL, KV_FLOAT);
}

kv_tensor *kv_decoder_forward(const kv_forward *f) {
    const kv_hparams *h = &f->model->hparams;
    kv_graph *g = f->graph;
    g->label = "input";
    kv_tensor **tables = make_rope_tables(f);
    if (!tables) return NULL;
    kv_tensor *x = kv_embed(g, &(kv_embed_params){f->tokens, h->embed_scale}, f->model->weights.embed,
                            f->n_tokens, KV_FLOAT);
    for (int32_t i = 0; i < h->n_layers; i++) {
        block b = {.f = f,
                   .g = g,
                   .h = h,
                   .layer = &h->layers[i],
                   .w = &f->model->weights.layers[i],
                   .rope_table = *find_rope_table(f, tables, i),
                   .index = i};
        g->label = layer_label(g, i);
        x = attention(&b, x);
        x = feed_forward(&b, x);
    }
    return logits(f, x);
}
