/* api_model.c: the library itself, models and tokens of kvant.h. */
#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/fingerprint.h"

#include <stdio.h>
#include <string.h>

#define TEXT(x)    #x
#define VERSION(x) TEXT(x)

const char *kvant_version(void) {
    return VERSION(KVANT_VERSION_MAJOR) "." VERSION(KVANT_VERSION_MINOR) "." VERSION(KVANT_VERSION_PATCH);
}

const char *kvant_status_text(kvant_status status) { return kv_status_text(status); }

const char *kvant_last_error(void) { return kv_last_error(); }

void kvant_set_log(kvant_log_fn fn, void *user) { kv_log_set(fn, user); }

/* ---- model ---- */

const kv_gguf *kv_model_gguf(const kvant_model *m) { return m->vocab_only ? m->gguf : m->model.gguf; }

static kv_status copy_string(char **out, const kv_gguf *g, const char *key, const char *fallback) {
    kv_gguf_string s = {fallback, strlen(fallback)};
    KV_TRY(kv_gguf_get_string(g, key, KV_GGUF_OPTIONAL, &s));
    *out = kv_strndup(s.at, s.size);
    return *out ? KVANT_OK : KVANT_NO_MEMORY;
}

static kv_status describe(kvant_model *m, const kv_gguf *g) {
    KV_TRY(copy_string(&m->name, g, "general.name", "unnamed"));
    KV_TRY(copy_string(&m->architecture, g, "general.architecture", "none"));
    int64_t bytes_of_type[256] = {0}, most = -1;
    for (int64_t i = 0; i < kv_gguf_n_tensors(g); i++) {
        const kv_gguf_tensor *t = kv_gguf_tensor_at(g, i);
        m->n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        m->n_bytes += (int64_t)t->bytes;
        if (t->dtype->gguf_id >= 0 && t->dtype->gguf_id < 256)
            bytes_of_type[t->dtype->gguf_id] += (int64_t)t->bytes;
    }
    const kv_dtype *main_type = NULL;
    for (int32_t id = 0; id < 256; id++)
        if (bytes_of_type[id] > most && bytes_of_type[id])
            most = bytes_of_type[id], main_type = kv_dtype_by_gguf_id(id);
    snprintf(m->fingerprint, sizeof m->fingerprint, "%016llx", (unsigned long long)kv_gguf_fingerprint(g));
    char text[128];
    int n = snprintf(text, sizeof text, "%s %.0fM %s", m->architecture, (double)m->n_params / 1e6,
                     main_type ? main_type->name : "without weights");
    m->description = kv_strndup(text, (size_t)n);
    return m->description ? KVANT_OK : KVANT_NO_MEMORY;
}

static kv_status load_weights(kvant_model *m, const kvant_model_options *o, kv_pool *pool) {
    kv_model_source source = {
        .gguf = m->gguf,
        .split = {.devices = m->devices, .shares = m->n_shares ? m->shares : NULL, .n_devices = m->n_devices},
        .pool = pool,
        .n_vocab = kv_tokenizer_size(m->tokenizer),
        .progress = o->progress,
        .user = o->user};
    m->gguf = NULL; /* taken */
    return kv_model_load(&m->model, &source);
}

/* Weights are packed by threads of the host, whatever devices they go to. */
static kv_status open_weights(kvant_model *m, const kvant_model_options *o) {
    int32_t n_threads = o->n_threads ? o->n_threads : kv_cpu_count();
    kv_pool *pool = NULL;
    KV_TRY(kv_pool_create(&pool, n_threads));
    kv_status status = kv_model_open_devices(m, o, n_threads);
    if (!status) status = load_weights(m, o, pool);
    kv_pool_destroy(pool);
    return status;
}

static kv_status open_model(kvant_model *m, const char *path, const kvant_model_options *o) {
    int64_t start = kv_now_ns();
    m->vocab_only = o->vocab_only;
    KV_TRY(kv_gguf_open(&m->gguf, path));
    kv_status status;
    KV_TRY_DONE(describe(m, m->gguf));
    KV_TRY_DONE(kv_tokenizer_create(&m->tokenizer, m->gguf));
    if (!o->vocab_only) KV_TRY_DONE(open_weights(m, o));
    m->load_seconds = kv_seconds_since(start);
    return KVANT_OK;
done:
    return status == KVANT_CANCELLED ? status : kv_fail_in(status, "%s", path);
}

kvant_status kvant_model_open(kvant_model **out, const char *path, const kvant_model_options *options) {
    kvant_model_options o = KVANT_MODEL_OPTIONS_INIT;
    if (!out || !path) return kv_fail(KVANT_INVALID, "kvant_model_open: out and path must not be NULL");
    KV_TRY(kv_take_struct(&o, sizeof o, options, "kvant_model_options"));
    kvant_model *m = kv_alloc(1, sizeof *m);
    kv_status status = m ? open_model(m, path, &o) : KVANT_NO_MEMORY;
    if (status)
        kvant_model_close(m);
    else
        *out = m;
    return status;
}

void kvant_model_close(kvant_model *m) {
    if (!m) return;
    kv_tokenizer_destroy(m->tokenizer); /* borrows the file: goes first */
    kv_model_clear(&m->model);
    kv_gguf_close(m->gguf);
    kv_model_close_devices(m);
    kv_free(m->name);
    kv_free(m->architecture);
    kv_free(m->description);
    kv_free(m);
}

void kvant_model_get_info(const kvant_model *m, kvant_model_info *info) {
    const kv_hparams *h = &m->model.hparams;
    kvant_model_info i = {.name = m->name,
                          .architecture = m->architecture,
                          .description = m->description,
                          .n_params = m->n_params,
                          .n_bytes = m->n_bytes,
                          .n_layers = h->n_layers,
                          .n_embd = h->n_embd,
                          .n_vocab = kv_tokenizer_size(m->tokenizer),
                          .n_ctx_train = h->n_ctx_train,
                          .head_dim = h->k_dim,
                          .load_seconds = m->load_seconds,
                          .fingerprint = m->fingerprint};
    if (h->layers) i.n_heads = h->layers[0].n_heads, i.n_kv_heads = h->layers[0].n_kv_heads;
    i.cpu = m->n_devices ? m->devices[0]->kernels : "none";
    for (int32_t d = 0; d < m->n_devices; d++) i.n_threads += m->devices[d]->n_threads;
    kv_give_struct(info, &i, sizeof i);
}

/* ---- tokens ---- */

kvant_status kvant_tokenize(const kvant_model *model, const char *text, size_t n_bytes, int flags,
                            kvant_token *tokens, size_t capacity, size_t *n_tokens) {
    kv_tokens list = {0};
    kv_encode_options options = {.add_special = flags & KVANT_TOKENIZE_BOS_EOS,
                                 .parse_special = flags & KVANT_TOKENIZE_SPECIAL};
    kv_status status = kv_tokenizer_encode(model->tokenizer, text, n_bytes, options, &list);
    if (!status) {
        *n_tokens = list.count;
        if (list.count <= capacity && list.count)
            memcpy(tokens, list.at, list.count * sizeof *tokens);
        else if (list.count)
            status = kv_fail(KVANT_INVALID, "%zu tokens, room for %zu", list.count, capacity);
    }
    kv_vec_clear(&list);
    return status;
}

kvant_status kvant_token_bytes(const kvant_model *model, kvant_token token, bool special, const char **bytes,
                               size_t *n_bytes) {
    return kv_tokenizer_piece(model->tokenizer, token, special, bytes, n_bytes);
}

kvant_status kvant_detokenize(const kvant_model *model, const kvant_token *tokens, size_t n_tokens,
                              bool special, char *text, size_t capacity, size_t *n_bytes) {
    size_t total = 0;
    bool at_start = kv_tokenizer_drops_leading_space(model->tokenizer);
    for (size_t i = 0; i < n_tokens; i++) {
        const char *bytes;
        size_t n;
        KV_TRY(kv_tokenizer_piece(model->tokenizer, tokens[i], special, &bytes, &n));
        bool is_text = kv_tokenizer_type(model->tokenizer, tokens[i]) != KV_TOKEN_CONTROL;
        if (at_start && is_text && n && *bytes == ' ') bytes++, n--;
        if (is_text) at_start = false;
        if (total + n <= capacity && n) memcpy(text + total, bytes, n);
        total += n;
    }
    *n_bytes = total;
    return total <= capacity ? KVANT_OK
                             : kv_fail(KVANT_INVALID, "%zu bytes of text, room for %zu", total, capacity);
}

kvant_token kvant_token_bos(const kvant_model *model) { return kv_tokenizer_bos(model->tokenizer); }

kvant_token kvant_token_eos(const kvant_model *model) { return kv_tokenizer_eos(model->tokenizer); }

bool kvant_token_is_end(const kvant_model *model, kvant_token token) {
    return kv_tokenizer_is_end(model->tokenizer, token);
}

/* ---- sampler ---- */

kvant_status kvant_sampler_create(kvant_sampler **out, const kvant_model *model,
                                  const kvant_sampler_options *options) {
    kvant_sampler_options o = KVANT_SAMPLER_OPTIONS_INIT;
    KV_TRY(kv_take_struct(&o, sizeof o, options, "kvant_sampler_options"));
    kvant_sampler *s = kv_alloc(1, sizeof *s);
    if (!s) return KVANT_NO_MEMORY;
    kv_status status = kv_sampler_create(&s->sampler, kv_tokenizer_size(model->tokenizer), &o);
    if (status)
        kv_free(s);
    else
        *out = s;
    return status;
}

void kvant_sampler_close(kvant_sampler *s) {
    if (!s) return;
    kv_sampler_destroy(s->sampler);
    kv_free(s);
}

kvant_status kvant_sample(kvant_token *out, kvant_sampler *s, const float *logits) {
    return kv_sampler_draw(out, s->sampler, logits);
}

void kvant_sampler_accept(kvant_sampler *s, kvant_token token) { kv_sampler_accept(s->sampler, token); }

void kvant_sampler_reset(kvant_sampler *s) { kv_sampler_reset(s->sampler); }
