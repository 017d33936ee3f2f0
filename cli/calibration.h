/* calibration.h: where the program keeps what kvant calibrate finds: a file for each model in the user's
 * cache. */
#pragma once

#include "kvant.h"

/* $XDG_CACHE_HOME/kvant/<fingerprint>.centre, or ~/.cache/kvant/...; owned by the caller (kv_free). NULL
 * where neither variable is set, or no memory is left. */
char *cli_calibration_path(const char *fingerprint);
/* Makes the folders that the path needs. Returns an exit status. */
int cli_calibration_make_folders(const char *path);
