/* session_snapshot.h: saving and restoring for the rest of the engine: a sequence with a note of its owner.
 */
#pragma once

#include "cache/snapshot.h"
#include "engine/engine.h"

kv_status kv_session_save(const kvant_session *s, int32_t seq, const char *path, const void *note,
                          size_t n_note);
/* Opens a file and finds out whether it fits the session's model; the caller closes it. */
kv_status kv_session_open_snapshot(kv_snapshot **out, const kvant_session *s, const char *path);
kv_status kv_session_restore(kvant_session *s, int32_t seq, const kv_snapshot *snapshot);
