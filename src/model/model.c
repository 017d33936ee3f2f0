/* model.c: opening a model from a GGUF file. */
#include "model/model.h"

#include <math.h>

static kv_status check_factors(const kv_model *m, const float *x, const char *name) {
    for (int32_t i = 0; x && i < m->hparams.rope[KV_ROPE_GLOBAL].n_rot / 2; i++)
        if (!(x[i] > 0))
            return kv_fail(KVANT_FORMAT, "tensor %s: factor %lld is %g, must be positive", name, (long long)i,
                           (double)x[i]);
    return KVANT_OK;
}

static kv_status load(kv_model *m, const kv_model_source *s) {
    KV_TRY(kv_arch_find(&m->arch, m->gguf));
    KV_TRY(kv_hparams_read(&m->hparams, m->gguf, m->arch->name));
    m->hparams.act = m->arch->act;
    m->hparams.pairing = m->arch->pairing;
    if (m->arch->adjust) KV_TRY(m->arch->adjust(&m->hparams, m->gguf));
    if (!kv_gguf_n_tensors(m->gguf))
        return kv_fail(KVANT_FORMAT, "the file has no tensors: a vocabulary only");
    kv_weights_source source = {.gguf = m->gguf,
                                .hparams = &m->hparams,
                                .arch = m->arch,
                                .split = s->split,
                                .pool = s->pool,
                                .progress = s->progress,
                                .user = s->user};
    KV_TRY(kv_weights_load(&m->weights, &source));
    KV_TRY(check_factors(m, m->weights.rope_factors, "rope_freqs.weight"));
    KV_TRY(check_factors(m, m->weights.rope_factors_long, "rope_factors_long.weight"));
    KV_TRY(check_factors(m, m->weights.rope_factors_short, "rope_factors_short.weight"));
    if (m->weights.embed->rows != s->n_vocab)
        return kv_fail(KVANT_FORMAT, "token_embd.weight has %lld rows, the vocabulary %d tokens",
                       (long long)m->weights.embed->rows, s->n_vocab);
    return KVANT_OK;
}

kv_status kv_model_load(kv_model *m, const kv_model_source *source) {
    *m = (kv_model){.gguf = source->gguf};
    kv_status status = load(m, source);
    if (status) kv_model_clear(m);
    return status;
}

void kv_model_clear(kv_model *m) {
    kv_weights_clear(&m->weights);
    kv_hparams_clear(&m->hparams);
    kv_gguf_close(m->gguf);
    *m = (kv_model){0};
}

/* Long factors (trained for more than the original context) once the context is longer than that. */
static const float *pick_factors(const kv_model *m, int32_t n_ctx) {
    const kv_weights *w = &m->weights;
    bool is_long = n_ctx > m->hparams.rope[KV_ROPE_GLOBAL].n_ctx_original;
    if (w->rope_factors) return w->rope_factors;
    return is_long && w->rope_factors_long ? w->rope_factors_long : w->rope_factors_short;
}

kv_status kv_model_ropes(kv_rope *ropes, const kv_model *m, int32_t n_ctx, kv_arena *arena) {
    for (int kind = 0; kind < KV_N_ROPES; kind++) {
        kv_rope_spec spec = m->hparams.rope[kind];
        if (kind == KV_ROPE_GLOBAL) spec.factors = pick_factors(m, n_ctx);
        double *freq = kv_arena_alloc(arena, (size_t)spec.n_rot / 2 + 1, sizeof *freq);
        if (!freq) return KVANT_NO_MEMORY;
        kv_rope_frequencies(freq, &spec);
        ropes[kind] = (kv_rope){.n_rot = spec.n_rot,
                                .pairing = m->hparams.pairing,
                                .magnitude = kind == KV_ROPE_GLOBAL ? m->hparams.rope_magnitude : 1,
                                .freq = freq};
    }
    return KVANT_OK;
}
