/* bench_shift.h: kvant bench --shift. */
#pragma once

#include "options.h"

/* What a shift costs and what it does to the logits, for each depth and each type of K with the first type of
 * V: lazy, eager, and reading the kept tokens again instead. Returns an exit status. */
int cli_bench_shift(const cli_options *options);
