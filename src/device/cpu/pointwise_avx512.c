/* pointwise_avx512.c: exp_sum, norm and gated activations, AVX-512. */
#include "device/cpu/pointwise_vec.h"

KV_POINTWISE(avx512)
