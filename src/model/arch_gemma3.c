/* gemma3: Gemma 3 (Google DeepMind 2025): as gemma2 with norms on Q and K instead of soft caps, five windowed
 * layers to one that sees all, and a rotation of its own for the windowed ones. */
#include "model/arch.h"

#include <math.h>

static kv_status adjust(kv_hparams *h, const kv_gguf *g) {
    float local_base = 10000;
    h->embed_scale = sqrtf((float)h->n_embd);
    if (h->n_layers == 62)
        h->attn_scale = 1 / sqrtf((float)(h->n_embd / h->layers[0].n_heads)); /* the 27B model */
    KV_TRY(kv_hparams_f32(g, "gemma3", "attn_logit_softcapping", KV_GGUF_OPTIONAL, &h->attn_softcap));
    KV_TRY(kv_hparams_f32(g, "gemma3", "final_logit_softcapping", KV_GGUF_OPTIONAL, &h->logit_softcap));
    KV_TRY(kv_hparams_f32(g, "gemma3", "rope.freq_base_swa", KV_GGUF_OPTIONAL, &local_base));
    if (!(local_base > 1))
        return kv_fail(KVANT_FORMAT, "gemma3.rope.freq_base_swa: %g, must be above 1", (double)local_base);
    kv_rope_spec *local = &h->rope[KV_ROPE_LOCAL]; /* scaling is for the layers that see all */
    local->base = (double)local_base;
    local->linear = 1;
    local->yarn_factor = 0;
    KV_TRY(kv_arch_read_windows(h, g, "gemma3", 0, 6));
    for (int32_t i = 0; i < h->n_layers; i++)
        if (h->layers[i].window) h->layers[i].rope = KV_ROPE_LOCAL;
    return KVANT_OK;
}

const kv_arch kv_arch_gemma3 = {.name = "gemma3",
                                .pairing = KV_ROPE_HALVES,
                                .act = KV_GLU_GELU,
                                .tensors = KV_ARCH_POST_NORM | KV_ARCH_QK_NORM,
                                .adjust = adjust};
