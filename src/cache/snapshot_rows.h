/* snapshot_rows.h: rows of a store as the layout `rows` has them, from and to any layout on any device. */
#pragma once

#include "core/tensor.h"

enum { KV_SNAPSHOT_ROWS = 64 }; /* that pass at a time at most: a page */

/* Bytes that the two below need beside the rows: 0 where the host reaches the memory. */
size_t kv_rows_staging(const kv_tensor *t);
/* Rows [first, first + n) of a tensor, n at most KV_SNAPSHOT_ROWS; `plain` has n of them. */
kv_status kv_rows_read(void *plain, const kv_tensor *t, int64_t first, int64_t n, void *staging);
kv_status kv_rows_write(const kv_tensor *t, const void *plain, int64_t first, int64_t n, void *staging);
