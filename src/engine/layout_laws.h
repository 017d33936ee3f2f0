/* layout_laws.h: what must hold of every layout, and how fast it is: behind kvant_check_layout. */
#pragma once

#include "kvant_tools.h"
#include "layout/layout.h"

/* What went wrong first with one law. */
typedef struct kv_law_result {
    bool holds;
    int32_t n_cases;
    char fault[192];
} kv_law_result;

typedef struct kv_law {
    const char *name;
    /* All cases of the law for one dtype; fills `r` on a fault. The status is about the check itself. */
    kv_status (*check)(kv_law_result *r, const kv_layout *l, const kv_dtype *d, unsigned cpu, uint64_t seed);
} kv_law;

int32_t kv_law_count(void);
const kv_law *kv_law_at(int32_t i);

/* Times of a layout, and of plain rows beside it. */
kv_status kv_layout_time(kvant_layout_speed *out, const kv_layout *l, const kv_dtype *d, unsigned cpu,
                         uint64_t seed);
