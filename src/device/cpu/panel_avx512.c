/* panel_avx512.c: the panel kernel, AVX-512. */
#include "device/cpu/matmul_floats_vec.h"

kv_panel_fn kv_panel_avx512;

void kv_panel_avx512(const kv_panel_args *a) { kv_floats_panel(a); }
