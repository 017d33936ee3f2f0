/* calibrate.h: the mean key of each head over a text, and how many of its pairs are worth their price. */
#pragma once

#include "engine/engine.h"
#include "kvant_tools.h"

/* NUL-terminated. */
extern const char kv_centre_text[];

enum { KV_CALIBRATION_TOKENS = 512 };

/* Both report `step` of `n_steps` of their own to `progress` (may be NULL) and stop with KVANT_CANCELLED
 * where that returns false. The model must have been opened with its weights. */
typedef struct kv_calibration {
    kvant_model *model;
    const kvant_token *tokens; /* borrowed */
    int32_t n_tokens;
    kvant_progress_fn progress;
    void *user;
} kv_calibration;

/* Fills a zeroed set with the means of the text's keys, in all pairs. */
kv_status kv_calibrate_means(kv_centre_set *set, const kv_calibration *c);
/* KL divergence from a cache of floats, with keys of few bits, for each number of pairs. */
kv_status kv_calibrate_pairs(kvant_calibrate_trial *trials, int32_t n_trials, const kv_centre_set *set,
                             const kv_calibration *c);
