/* fingerprint.h: which model something was made for. */
#pragma once

#include "gguf/gguf.h"

/* Chained XXH3 of the file's values, of the tensors' names, types and shapes, and of the first and last KiB
 * of each tensor: the same for a file, its copy and its split set, different for other weights, types or
 * metadata. */
uint64_t kv_gguf_fingerprint(const kv_gguf *g);
