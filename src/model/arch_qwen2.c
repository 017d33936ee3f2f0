/* qwen2: Qwen 2 and 2.5 (Yang et al. 2024): llama with biases on Q, K and V. */
#include "model/arch.h"

const kv_arch kv_arch_qwen2 = {
    .name = "qwen2", .pairing = KV_ROPE_HALVES, .act = KV_GLU_SILU, .tensors = KV_ARCH_QKV_BIAS};
