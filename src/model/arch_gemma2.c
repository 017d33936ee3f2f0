/* gemma2: Gemma 2 (Google DeepMind 2024): norms before and after, soft caps on scores and logits, a sliding
 * window on every other layer. */
#include "model/arch.h"

#include <math.h>

static kv_status adjust(kv_hparams *h, const kv_gguf *g) {
    h->embed_scale = sqrtf((float)h->n_embd);
    h->attn_softcap = 50;
    h->logit_softcap = 30;
    if (h->n_layers == 46)
        h->attn_scale = 1 / sqrtf((float)(h->n_embd / h->layers[0].n_heads)); /* the 27B model */
    KV_TRY(kv_hparams_f32(g, "gemma2", "attn_logit_softcapping", KV_GGUF_OPTIONAL, &h->attn_softcap));
    KV_TRY(kv_hparams_f32(g, "gemma2", "final_logit_softcapping", KV_GGUF_OPTIONAL, &h->logit_softcap));
    return kv_arch_read_windows(h, g, "gemma2", 4096, 2);
}

const kv_arch kv_arch_gemma2 = {.name = "gemma2",
                                .pairing = KV_ROPE_HALVES,
                                .act = KV_GLU_GELU,
                                .tensors = KV_ARCH_POST_NORM,
                                .adjust = adjust};
