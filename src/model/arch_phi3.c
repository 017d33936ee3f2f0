/* phi3: Phi 3, 3.5 and 4 (Abdin et al. 2024): Q, K and V in one matrix, gate and up in another, LongRoPE
 * factors, and a window on all layers where the file has one. */
#include "model/arch.h"

static kv_status adjust(kv_hparams *h, const kv_gguf *g) { return kv_arch_read_windows(h, g, "phi3", 0, 0); }

const kv_arch kv_arch_phi3 = {
    .name = "phi3", .pairing = KV_ROPE_HALVES, .act = KV_GLU_SILU, .adjust = adjust};
