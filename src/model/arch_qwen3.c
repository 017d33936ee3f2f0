/* qwen3: Qwen 3 (2025): no biases, a norm on every head of Q and K before the rotation. */
#include "model/arch.h"

const kv_arch kv_arch_qwen3 = {
    .name = "qwen3", .pairing = KV_ROPE_HALVES, .act = KV_GLU_SILU, .tensors = KV_ARCH_QK_NORM};
