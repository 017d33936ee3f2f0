/* engine.h: what is behind the opaque handles of kvant.h. The only place where tokenizer, model, cache,
 * scheduler and devices meet. */
#pragma once

#include "cache/cache.h"
#include "device/cpu/cpu_device.h"
#include "engine/centre_set.h"
#include "kvant.h"
#include "model/model.h"
#include "sched/plan.h"
#include "text/chat_template.h"
#include "text/sampler.h"
#include "text/tokenizer.h"

/* Public structs carry their size so that older callers work: copies what both sides know of `src` (may be
 * NULL) over the defaults in `dst`. */
kv_status kv_take_struct(void *dst, size_t dst_size, const void *src, const char *name);
/* The other way: fills what the caller's struct has room for; `dst` begins with its size. */
void kv_give_struct(void *dst, const void *src, size_t src_size);

typedef struct kv_device_place {
    const kv_device_kind *kind;
    int32_t index;
} kv_device_place;

struct kvant_model {
    kv_gguf *gguf; /* with vocab_only; else the model owns it */
    kv_device *devices[KV_MAX_DEVICES];
    kv_device_place places[KV_MAX_DEVICES]; /* what the devices are */
    int32_t shares[KV_MAX_DEVICES];         /* n_shares: of the layers; 0: even */
    int32_t n_devices, n_shares;
    kv_model model;
    kv_tokenizer *tokenizer;
    bool vocab_only;
    double load_seconds;
    int64_t n_params, n_bytes;
    char *name, *architecture, *description;
    char fingerprint[17]; /* fingerprint.h, in hexadecimal */
};

/* Devices and shares of options; kv_model_close_devices also after a failure. */
kv_status kv_model_open_devices(kvant_model *m, const kvant_model_options *o, int32_t n_threads);
void kv_model_close_devices(kvant_model *m);
/* The open device of a name; the failure lists them. */
kv_status kv_model_device(const kvant_model *m, kv_device **out, const char *name);

/* The open file, whoever owns it. */
const kv_gguf *kv_model_gguf(const kvant_model *m);

enum { KV_N_PLANS = 8 };

/* A plan for evaluations of one shape. */
typedef struct kv_plan_slot {
    kv_plan *plan;
    const kv_tensor *logits; /* NULL if there are no outputs */
    int32_t n_tokens, n_outputs, n_turns;
    int64_t last_used;
} kv_plan_slot;

struct kvant_session {
    kvant_model *model;
    kv_arena arena; /* frequencies */
    kv_rope ropes[KV_N_ROPES];
    kv_cache *cache;
    int32_t n_ctx, n_batch, n_sequences;
    kvant_act act;
    kvant_shift shift;
    kv_plan *rewrite;                /* keys rotated in place: sequence.c; NULL until it is needed */
    const kv_centre_set *centre_set; /* while it is created: taken whatever the options and types say */
    const kv_centre **centres;       /* n_layers, in the arena; NULL where keys are stored as they are */
    kv_centre_source centre_source;
    kv_plan_slot plans[KV_N_PLANS];
    int64_t crossed_bytes; /* between devices */
    int64_t n_runs;
    int32_t *tokens, *output_rows; /* n_batch: what the plans read */
    kv_cache_part *parts;          /* n_sequences */
    float *logits;                 /* of the last evaluation */
    int32_t n_logits;
    size_t logits_capacity; /* floats */
    atomic_bool cancel;
};

struct kvant_sampler {
    kv_sampler *sampler;
};

/* kvant_session_create with a centre set, borrowed during the call, in place of what the options say: for
 * every layer, whatever its type. NULL: by the options. */
kv_status kv_session_create(kvant_session **out, kvant_model *model, const kvant_session_options *options,
                            const kv_centre_set *centre_set);
/* Fills centres: session_centre.c. */
kv_status kv_session_open_centres(kvant_session *s, const kvant_session_options *o);
/* For kvant_session_info. Static. */
const char *kv_session_centre_text(const kvant_session *s);

/* The cache of a session whose sizes and rotations are set: session_cache.c. */
kv_status kv_session_create_cache(kvant_session *s, const kvant_session_options *o);

/* The plan for evaluations of this shape, made if it is new. */
kv_status kv_session_find_plan(kvant_session *s, int32_t n_tokens, int32_t n_outputs, kv_plan_slot **out);

int32_t kv_session_n_vocab(const kvant_session *s);
kv_status kv_session_check_seq(const kvant_session *s, int32_t seq);
/* Cells that are free for any sequence. */
int32_t kv_session_room(const kvant_session *s);

/* Makes the plan that rewrites keys, unless it is there: sequence.c. */
kv_status kv_session_plan_rewrite(kvant_session *s);
/* For callers that read tokens again from kv_cache_end on, where layers with a window have released what they
 * would have to see. Removes from `pos` on, or from the last position before it that the sequence can go on
 * from; fails only for a sequence that is not there. */
kv_status kv_session_cut(kvant_session *s, int32_t seq, int64_t pos);
/* kvant_seq_drop; where that is not supported, a cut at p0. */
kv_status kv_session_drop(kvant_session *s, int32_t seq, int64_t p0, int64_t p1);

/* ---- generation with hooks, for kvant_generate and chats ---- */

typedef struct kv_generation {
    kvant_session *session;
    int32_t seq;
    kv_sampler *sampler;
    const int32_t *prompt;
    size_t n_prompt;
    const kvant_generate_options *options;
    kv_tokens *generated; /* appended to, without the end token; NULL: not kept */
    /* Called when no cell is free: frees at least one, or returns false to end with KVANT_FINISH_CONTEXT. */
    kv_status (*make_room)(void *user, bool *made);
    void *user;
} kv_generation;

/* Evaluates the prompt, then samples until something ends it. The last generated token is not evaluated. */
kv_status kv_run_generation(const kv_generation *g, kvant_generate_result *result);
