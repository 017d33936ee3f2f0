/* op.h: the registry of ops and what their shape rules share. An op is one file with a const kv_op, its
 * builder in <op>.h, and one line in ops.inc. Ops never name a dtype or a layout: they take what their
 * tensors have. */
#pragma once

#include "core/graph.h"

#define KV_OP(name) extern const kv_op kv_op_##name;
#include "op/ops.inc"
#undef KV_OP

int32_t kv_op_count(void);
const kv_op *kv_op_at(int32_t i);

/* Shape rules in one line: t has this shape (-1: any), or the failure names `what` and both shapes. */
kv_status kv_check_shape(const kv_tensor *t, const char *what, int64_t rows, int64_t cols);
/* t is in plain rows of a dtype with one number a block (activations that ops read as floats). */
kv_status kv_check_plain(const kv_tensor *t, const char *what);

/* For references: row `row` of `t` as floats, in `dst` (t->cols); any dtype and layout. Allocates; slow by
 * design. */
kv_status kv_read_row(float *dst, const kv_tensor *t, int64_t row);
/* Codes a row of floats into `t` (layout rows). */
void kv_write_row(const kv_tensor *t, int64_t row, const float *src);
