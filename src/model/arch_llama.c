/* llama: Llama 1 to 3 (Touvron et al. 2023), Mistral, SmolLM and other models of the same shape. Converters
 * permute Q and K so that rotary pairs are adjacent. */
#include "model/arch.h"

const kv_arch kv_arch_llama = {.name = "llama", .pairing = KV_ROPE_ADJACENT, .act = KV_GLU_SILU};
