/* pointwise_avx2.c: exp_sum, norm and gated activations, AVX2. */
#include "device/cpu/pointwise_vec.h"

KV_POINTWISE(avx2)
