/* panel_avx2.c: the panel kernel, AVX2. */
#include "device/cpu/matmul_floats_vec.h"

kv_panel_fn kv_panel_avx2;

void kv_panel_avx2(const kv_panel_args *a) { kv_floats_panel(a); }
