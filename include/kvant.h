/* kvant.h: the public C API of libkvant, a runtime for large language models whose KV cache may have any
 * layout, any quantization and live on any device.
 *
 * Objects are opaque; whoever creates one closes it with the matching function, NULL is always legal there.
 * Every function that can fail returns a kvant_status (0 = success), writes its result through its first
 * parameter only on success, and leaves a one-line message for kvant_last_error(). The library never aborts,
 * exits, prints or reads the environment.
 *
 * Threads: a kvant_model is immutable once opened and may be shared by any number of sessions on any threads.
 * A session, a chat or a sampler belongs to one thread at a time; kvant_session_cancel() alone may be called
 * from any thread or signal handler. Sessions of one model take turns on the model's thread pool.
 *
 * Structs start with `size`: set them up with the _INIT macro, then change what you need.
 */
#ifndef KVANT_H
#define KVANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For the _INIT macros of structs that start as all zeros but for their size. */
#ifdef __cplusplus
template <class T> inline T kvant_zero_of_size() {
    T value = T();
    value.size = sizeof(T);
    return value;
}
#define KVANT_ZERO_OF_SIZE(type) kvant_zero_of_size<type>()
#else
#define KVANT_ZERO_OF_SIZE(type) \
    { .size = sizeof(type) }
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define KVANT_VERSION_MAJOR 0
#define KVANT_VERSION_MINOR 1
#define KVANT_VERSION_PATCH 0

#if defined(__GNUC__)
#define KVANT_API      __attribute__((visibility("default")))
#define KVANT_MUST_USE __attribute__((warn_unused_result))
#else
#define KVANT_API
#define KVANT_MUST_USE
#endif

/* ---- status ------------------------------------------------------------------------------------------ */

#define KVANT_STATUS_LIST(X)           \
    X(OK, "ok")                        \
    X(FAILED, "failed")                \
    X(INVALID, "invalid argument")     \
    X(FORMAT, "malformed data")        \
    X(UNSUPPORTED, "not supported")    \
    X(NOT_FOUND, "not found")          \
    X(IO, "input/output error")        \
    X(NO_MEMORY, "out of memory")      \
    X(CONTEXT_FULL, "context is full") \
    X(CANCELLED, "cancelled")

typedef enum kvant_status {
#define KVANT_STATUS_ENUM(name, text) KVANT_##name,
    KVANT_STATUS_LIST(KVANT_STATUS_ENUM)
#undef KVANT_STATUS_ENUM
} kvant_status;

KVANT_API const char *kvant_version(void);
/* "ok", "out of memory", ...; never NULL. */
KVANT_API const char *kvant_status_text(kvant_status status);
/* What went wrong in the last failed call on this thread: one line, no newline. Valid until the next failure.
 */
KVANT_API const char *kvant_last_error(void);

typedef enum kvant_log_level {
    KVANT_LOG_ERROR,
    KVANT_LOG_WARN,
    KVANT_LOG_INFO,
    KVANT_LOG_DEBUG
} kvant_log_level;
/* `message` is one line without a newline. May be called from any thread that calls into the library. */
typedef void (*kvant_log_fn)(void *user, kvant_log_level level, const char *message);
/* Process-wide; NULL (the start) drops messages. Call it before the first model is opened. */
KVANT_API void kvant_set_log(kvant_log_fn fn, void *user);

/* ---- model ------------------------------------------------------------------------------------------- */

typedef int32_t kvant_token;
typedef struct kvant_model kvant_model;

/* Progress of a long call, 0 to 1; return false to cancel it. */
typedef bool (*kvant_progress_fn)(void *user, double fraction);

typedef struct kvant_model_options {
    size_t size;
    int32_t n_threads;    /* worker threads of the CPU device; 0 = one per usable core */
    const char *cpu_mask; /* highest instruction set to use: "scalar", "avx2", "avx512", "neon"; NULL = all
                             there is */
    bool vocab_only;      /* tokenizer and metadata only: no weights, no sessions */
    kvant_progress_fn progress;
    void *user;
    /* "cpu:0,cpu:1": each with memory of its own and its part of n_threads, in order; NULL = "cpu:0". */
    const char *devices;
    /* Shares of the layers, in the order of the devices: "1,3"; NULL: even. The embedding is beside the first
     * layer, the output beside the last. */
    const char *split;
} kvant_model_options;
#define KVANT_MODEL_OPTIONS_INIT \
    { sizeof(kvant_model_options), 0, NULL, false, NULL, NULL, NULL, NULL }

/* Opens a GGUF file (the first of a split set). `options` may be NULL. The whole file is validated first. */
KVANT_API KVANT_MUST_USE kvant_status kvant_model_open(kvant_model **out, const char *path,
                                                       const kvant_model_options *options);
/* All sessions of the model must be closed before. */
KVANT_API void kvant_model_close(kvant_model *model);

typedef struct kvant_model_info {
    size_t size;
    const char *name, *architecture, *description; /* borrowed from the model */
    int64_t n_params, n_bytes;                     /* weights as stored in the file */
    int32_t n_layers, n_embd, n_vocab, n_ctx_train, n_heads, n_kv_heads, head_dim;
    int32_t n_threads;
    const char *cpu; /* instruction set of the kernels in use: "avx512vnni", "avx2", ... */
    double load_seconds;
    /* Of metadata, shapes and samples of the weights: 16 hexadecimal digits. Borrowed from the model. */
    const char *fingerprint;
} kvant_model_info;
#define KVANT_MODEL_INFO_INIT KVANT_ZERO_OF_SIZE(kvant_model_info)
KVANT_API void kvant_model_get_info(const kvant_model *model, kvant_model_info *info);

/* ---- tokens ------------------------------------------------------------------------------------------ */

typedef enum kvant_tokenize_flags {
    KVANT_TOKENIZE_PLAIN = 0,
    KVANT_TOKENIZE_BOS_EOS = 1, /* add the BOS/EOS tokens that the model asks for */
    KVANT_TOKENIZE_SPECIAL = 2  /* recognize control tokens written in the text */
} kvant_tokenize_flags;

/* Writes at most `capacity` tokens and sets *n_tokens to the number the text has; more than `capacity` is
 * KVANT_INVALID and nothing is lost: call again with room (3 * n_bytes + 3 is always enough). Any bytes are
 * legal. */
KVANT_API KVANT_MUST_USE kvant_status kvant_tokenize(const kvant_model *model, const char *text,
                                                     size_t n_bytes, int flags, kvant_token *tokens,
                                                     size_t capacity, size_t *n_tokens);
/* The bytes of one token; not NUL-terminated text, may be part of a UTF-8 character. `special`: control
 * tokens give their name instead of nothing. *bytes is borrowed from the model. */
KVANT_API KVANT_MUST_USE kvant_status kvant_token_bytes(const kvant_model *model, kvant_token token,
                                                        bool special, const char **bytes, size_t *n_bytes);
/* The text of a run of tokens, as kvant_tokenize: *n_bytes is the length needed, no NUL is added. */
KVANT_API KVANT_MUST_USE kvant_status kvant_detokenize(const kvant_model *model, const kvant_token *tokens,
                                                       size_t n_tokens, bool special, char *text,
                                                       size_t capacity, size_t *n_bytes);
/* -1 where the model has none. */
KVANT_API kvant_token kvant_token_bos(const kvant_model *model);
KVANT_API kvant_token kvant_token_eos(const kvant_model *model);
/* Ends a generation: EOS, end of turn, ... */
KVANT_API bool kvant_token_is_end(const kvant_model *model, kvant_token token);

/* ---- session ----------------------------------------------------------------------------------------- */

typedef struct kvant_session kvant_session;

typedef enum kvant_act { KVANT_ACT_FAST, KVANT_ACT_F32 } kvant_act;

typedef enum kvant_shift {
    KVANT_SHIFT_LAZY, /* keys are never touched: queries turn */
    KVANT_SHIFT_EAGER /* keys are rotated in place, and coded anew */
} kvant_shift;

typedef enum kvant_rotation {
    KVANT_ROTATION_AUTO, /* a Hadamard transform of K and V wherever their type is quantized */
    KVANT_ROTATION_OFF
} kvant_rotation;

/* Centred keys: the mean key of a head is left out of what is stored and its share of the scores added
 * exactly, wherever K is quantized. AUTO: what kvant_calibrate wrote to centre_path, else the biases that the
 * model adds to its keys, else nothing. */
typedef enum kvant_centre { KVANT_CENTRE_AUTO, KVANT_CENTRE_OFF } kvant_centre;

typedef struct kvant_session_options {
    size_t size;
    int32_t n_ctx;       /* tokens the cache holds, all sequences together; 0 = min(model's, 8192) */
    int32_t n_batch;     /* tokens evaluated at once at most; 0 = 512 */
    int32_t n_sequences; /* ids 0 .. n_sequences-1 may be used; 0 = 1 */
    const char *type_k;  /* "f32" "f16" "bf16" "q8_0" "q5_1" "q4_0" ...; NULL = "f16" */
    const char *type_v;
    kvant_act act; /* FAST: activations quantized to 8 bits; F32: everything in f32 */
    /* Types of single layers, over type_k and type_v: "0-1,-2:-1=f16;5=q8_0/q4_0"; NULL: none. */
    const char *kv_layers;
    const char *layout_k, *layout_v; /* "rows", "tile16x4", ...; NULL = what the device likes best */
    kvant_rotation rotation;
    kvant_centre centre;
    const char *centre_path; /* NULL: none; another model's file is an error */
    int32_t centre_pairs;    /* rotary pairs of each head that are centred, at most; 0: as calibrated */
    kvant_shift shift;
    /* Layers with a sliding window keep, of each sequence, the window, the margin, and the first n_pin
     * positions; so a sequence can go back by up to the margin. Margin 0 = 256, -1 = these layers keep all.
     */
    int32_t window_margin, n_pin;
    /* Where keys and values are: "cpu:1", or for single layers "0-3=cpu:1;-1=cpu:0"; NULL = beside the
     * weights of their layer. */
    const char *kv_device;
} kvant_session_options;
#define KVANT_SESSION_OPTIONS_INIT KVANT_ZERO_OF_SIZE(kvant_session_options)

KVANT_API KVANT_MUST_USE kvant_status kvant_session_create(kvant_session **out, kvant_model *model,
                                                           const kvant_session_options *options);
KVANT_API void kvant_session_close(kvant_session *session);
/* Makes the running evaluation or generation of this session stop soon with KVANT_CANCELLED. The flag stays
 * set until the next kvant_session_resume(). Async-signal-safe. */
KVANT_API void kvant_session_cancel(kvant_session *session);
KVANT_API void kvant_session_resume(kvant_session *session);

typedef enum kvant_logits_mode { KVANT_LOGITS_NONE, KVANT_LOGITS_LAST, KVANT_LOGITS_ALL } kvant_logits_mode;

/* Part of an evaluation: tokens appended to one sequence. */
typedef struct kvant_chunk {
    int32_t sequence;
    const kvant_token *tokens; /* borrowed during the call */
    int32_t n_tokens;          /* at least 1 */
    kvant_logits_mode logits;
} kvant_chunk;

/* Appends the chunks to their sequences (each sequence at most once a call) and computes the logits asked
 * for. More than n_batch tokens are split inside. Fails with KVANT_CONTEXT_FULL before anything has changed;
 * after KVANT_CANCELLED or any other failure the sequences are as before the call too. */
KVANT_API KVANT_MUST_USE kvant_status kvant_eval(kvant_session *session, const kvant_chunk *chunks,
                                                 int32_t n_chunks);
/* Row i of the logits of the last kvant_eval, in the order of its chunks: n_vocab floats, borrowed until the
 * next evaluation; NULL if i is out of range. */
KVANT_API const float *kvant_logits(const kvant_session *session, int32_t i);
KVANT_API int32_t kvant_n_logits(const kvant_session *session);

/* ---- cache ------------------------------------------------------------------------------------------- */

/* Positions of the sequence's first token, and of its last + 1; 0 when empty. Ranges below are [p0, p1), p1 <
 * 0 means the end. Each of these functions does all it says or changes nothing. KVANT_UNSUPPORTED: layers
 * with a sliding window have released tokens that they would have to see; the message says where the sequence
 * can be cut and read again, kvant_seq_rewind too. */
KVANT_API int64_t kvant_seq_begin(const kvant_session *session, int32_t seq);
KVANT_API int64_t kvant_seq_end(const kvant_session *session, int32_t seq);
/* Tokens in the cache of this sequence (less than kvant_seq_end after a removal without a shift). */
KVANT_API int64_t kvant_seq_tokens(const kvant_session *session, int32_t seq);
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_remove(kvant_session *session, int32_t seq, int64_t p0,
                                                       int64_t p1);
/* Adds `delta` to the positions in the range. With KVANT_SHIFT_LAZY the keys are not touched, later queries
 * turn instead; with KVANT_SHIFT_EAGER the keys are rotated (those that another sequence shares are copied
 * first: KVANT_CONTEXT_FULL if there is no room for that). */
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_shift(kvant_session *session, int32_t seq, int64_t p0,
                                                      int64_t p1, int64_t delta);
/* Removes [p0, p1) and moves what follows down by p1 - p0, or leaves all as it was. */
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_drop(kvant_session *session, int32_t seq, int64_t p0,
                                                     int64_t p1);
/* Makes `to` a copy of `from`; pages are shared, nothing is copied until one of them writes. */
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_copy(kvant_session *session, int32_t to, int32_t from);
/* The same of the positions [p0, p1) alone. */
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_fork(kvant_session *session, int32_t to, int32_t from,
                                                     int64_t p0, int64_t p1);
/* Empties all other sequences. */
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_keep(kvant_session *session, int32_t seq);
/* Rotates keys so that all of the sequence is in one frame and no query has to turn; positions stay. */
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_compact(kvant_session *session, int32_t seq);
/* Divides the positions in the range (rounded down; keys are rotated): tokens may share a position then, but
 * not with tokens outside of the range, which are best moved first. */
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_divide(kvant_session *session, int32_t seq, int64_t p0,
                                                       int64_t p1, int64_t divisor);
/* The highest position, at most `pos`, from which on the sequence can be removed and gone on with. */
KVANT_API int64_t kvant_seq_rewind(const kvant_session *session, int32_t seq, int64_t pos);
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_clear(kvant_session *session, int32_t seq);
/* True where the keys' positions can be moved; false with a reason (borrowed, static) where not. */
KVANT_API bool kvant_can_shift(const kvant_session *session, const char **reason);

/* ---- saving ------------------------------------------------------------------------------------------ */

/* Writes a sequence to a file: which model it belongs to, how its cells are coded and rotated, its tokens,
 * positions and rows, with checksums (docs/snapshot-format.md). Its size depends on the cells that the
 * sequence has, not on the context. Nothing appears under `path` before all of it is written. */
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_save(const kvant_session *session, int32_t seq,
                                                     const char *path);
/* Makes a sequence (any; what it held goes) what was saved, by a session of the same model with any types,
 * layouts, devices and rotation: rows are copied byte by byte where they are coded alike, else decoded and
 * coded again. Everything is checked first; a file of another model, a damaged one or a context that is too
 * small is an error that changes nothing. */
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_load(kvant_session *session, int32_t seq, const char *path);
/* The tokens that the sequence holds, in order of position, as kvant_seq_tokens counts them. -1: not known,
 * because every layer has a window and has released it. *n_tokens is filled also where `capacity` is too
 * small (KVANT_INVALID). */
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_get_tokens(const kvant_session *session, int32_t seq,
                                                           kvant_token *tokens, size_t capacity,
                                                           size_t *n_tokens);
/* Cuts a sequence back to what it shares with the beginning of a text, but for the text's last token, so that
 * evaluating tokens + *n_reused gives the logits of the whole text. Layers with a window may have released
 * what going back so far would need: then less is reused, perhaps nothing. */
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_reuse(kvant_session *session, int32_t seq,
                                                      const kvant_token *tokens, size_t n_tokens,
                                                      size_t *n_reused);

/* ---- sampling ---------------------------------------------------------------------------------------- */

typedef struct kvant_sampler kvant_sampler;

typedef struct kvant_logit_bias {
    kvant_token token;
    float bias;
} kvant_logit_bias;

typedef struct kvant_sampler_options {
    size_t size;
    float temperature; /* <= 0 is greedy */
    int32_t top_k;     /* 0 = off */
    float top_p, min_p;
    float repeat_penalty, presence_penalty, frequency_penalty;
    int32_t repeat_last_n; /* tokens the penalties look back on; 0 = none */
    uint64_t seed;
    const kvant_logit_bias *bias; /* copied */
    int32_t n_bias;
} kvant_sampler_options;
#define KVANT_SAMPLER_OPTIONS_INIT \
    { sizeof(kvant_sampler_options), 0.8f, 40, 0.95f, 0.05f, 1.0f, 0.0f, 0.0f, 64, 0, NULL, 0 }

KVANT_API KVANT_MUST_USE kvant_status kvant_sampler_create(kvant_sampler **out, const kvant_model *model,
                                                           const kvant_sampler_options *options);
KVANT_API void kvant_sampler_close(kvant_sampler *sampler);
/* Draws a token from n_vocab logits. NaN logits are KVANT_FAILED. Does not record it: see accept. */
KVANT_API KVANT_MUST_USE kvant_status kvant_sample(kvant_token *out, kvant_sampler *sampler,
                                                   const float *logits);
/* Adds a token (of the prompt or drawn) to what the penalties look back on. */
KVANT_API void kvant_sampler_accept(kvant_sampler *sampler, kvant_token token);
/* Forgets the history and restarts the random numbers. */
KVANT_API void kvant_sampler_reset(kvant_sampler *sampler);

/* ---- generation -------------------------------------------------------------------------------------- */

/* What happens when the context is full. Tokens that stay move to lower positions, so that none is as far as
 * n_ctx from another; their keys are not touched. */
typedef enum kvant_context_policy {
    KVANT_CONTEXT_STOP,  /* the generation ends */
    KVANT_CONTEXT_SHIFT, /* the first n_keep tokens stay, the older half of the rest goes */
    KVANT_CONTEXT_WINDOW /* the first n_keep tokens and the most recent stay; a page (64 tokens) goes at a
                            time */
} kvant_context_policy;

/* Frees cells for `n_tokens` more, as the policy says, by dropping tokens of the sequence behind its first
 * n_keep (-1: 4). *n_dropped (may be NULL) is filled unless the arguments are wrong. KVANT_CONTEXT_FULL where
 * what may go is not enough; it is gone then. */
KVANT_API KVANT_MUST_USE kvant_status kvant_seq_make_room(kvant_session *session, int32_t seq,
                                                          int64_t n_tokens, kvant_context_policy policy,
                                                          int64_t n_keep, int64_t *n_dropped);

typedef enum kvant_finish {
    KVANT_FINISH_END,      /* the model ended its text */
    KVANT_FINISH_LENGTH,   /* max_tokens generated */
    KVANT_FINISH_CONTEXT,  /* the context is full and nothing may go: KVANT_CONTEXT_STOP, or all is kept */
    KVANT_FINISH_STOPPED,  /* a stop string, or the text callback returned false */
    KVANT_FINISH_CANCELLED /* kvant_session_cancel */
} kvant_finish;
KVANT_API const char *kvant_finish_text(kvant_finish finish);

/* Receives generated text as it becomes final: whole UTF-8 characters only. Return false to stop. */
typedef bool (*kvant_text_fn)(void *user, const char *text, size_t n_bytes);
/* Receives each generated token, end tokens not among them, before its text. Return false to stop. */
typedef bool (*kvant_token_fn)(void *user, kvant_token token);

typedef struct kvant_generate_options {
    size_t size;
    int32_t max_tokens; /* generated tokens at most; 0 = until the context is full or the model ends, but no
                           more than n_ctx where the policy would never let it be full */
    bool ignore_end;    /* go on after end tokens */
    kvant_context_policy context;
    int32_t n_keep;          /* tokens at the start that always stay; -1 = the whole prompt, but only 4 under
                                KVANT_CONTEXT_WINDOW or where the prompt had to be trimmed */
    const char *const *stop; /* stop strings, not part of the text given out */
    int32_t n_stop;
    kvant_text_fn text;
    void *user;
    /* A prompt that does not fit loses its middle: its first n_keep tokens and its end stay, so that a
     * quarter of the room (or max_tokens, if fewer) is left for the answer. Else it is an error. */
    bool trim;
    kvant_token_fn token; /* with `user`, as `text`; may be NULL */
} kvant_generate_options;
#define KVANT_GENERATE_OPTIONS_INIT KVANT_ZERO_OF_SIZE(kvant_generate_options)

typedef struct kvant_generate_result {
    size_t size;
    kvant_finish finish;
    int32_t n_prompt, n_cached, n_generated,
        n_shifts; /* n_cached: prompt tokens that were in the cache already */
    double prefill_seconds, decode_seconds;
    int32_t n_trimmed, trim_begin; /* tokens of the prompt left out, and the index of the first of them */
} kvant_generate_result;
#define KVANT_GENERATE_RESULT_INIT KVANT_ZERO_OF_SIZE(kvant_generate_result)

/* Appends the prompt to the sequence and generates. A prompt that does not fit in the context is an error
 * that names both lengths, whatever the policy, unless it may be trimmed. Afterwards the sequence holds the
 * prompt and what was generated but for the last token, which nothing has read yet. `result` is filled also
 * when the call fails half-way. */
KVANT_API KVANT_MUST_USE kvant_status kvant_generate(kvant_session *session, int32_t seq,
                                                     kvant_sampler *sampler, const kvant_token *prompt,
                                                     size_t n_prompt, const kvant_generate_options *options,
                                                     kvant_generate_result *result);

/* ---- chat -------------------------------------------------------------------------------------------- */

typedef struct kvant_chat kvant_chat;

typedef struct kvant_chat_options {
    size_t size;
    const char
        *template_name; /* "chatml" "llama2" "llama3" "gemma" "mistral" "phi3"; NULL = picked by the file */
    /* SHIFT drops whole messages, the oldest first, never a system message or the last question. WINDOW drops
     * pages of tokens behind what the format begins with and the system messages at the start (at least 4
     * tokens, or n_keep), so that a reply may be longer than the context. */
    kvant_context_policy context;
} kvant_chat_options;
#define KVANT_CHAT_OPTIONS_INIT KVANT_ZERO_OF_SIZE(kvant_chat_options)

/* A conversation in one sequence of a session; borrows both. Only one chat may use a sequence. */
KVANT_API KVANT_MUST_USE kvant_status kvant_chat_create(kvant_chat **out, kvant_session *session, int32_t seq,
                                                        const kvant_chat_options *options);
KVANT_API void kvant_chat_close(kvant_chat *chat);
/* Appends a message. role: "system", "user" or "assistant". The text is never parsed for control tokens. */
KVANT_API KVANT_MUST_USE kvant_status kvant_chat_add(kvant_chat *chat, const char *role, const char *text);
/* Generates the next assistant message and appends it (what there is of it, also after a cancel). Only what
 * the cache does not hold yet is evaluated. */
KVANT_API KVANT_MUST_USE kvant_status kvant_chat_reply(kvant_chat *chat, kvant_sampler *sampler,
                                                       const kvant_generate_options *options,
                                                       kvant_generate_result *result);
/* Removes the last message (and its tokens from the cache). */
KVANT_API KVANT_MUST_USE kvant_status kvant_chat_pop(kvant_chat *chat);
KVANT_API KVANT_MUST_USE kvant_status kvant_chat_clear(kvant_chat *chat);
KVANT_API int32_t kvant_chat_count(const kvant_chat *chat);
/* Message i; *role and *text are borrowed until the chat changes. *in_context: not dropped by a shift. */
KVANT_API KVANT_MUST_USE kvant_status kvant_chat_message(const kvant_chat *chat, int32_t i, const char **role,
                                                         const char **text, bool *in_context);
/* A conversation with the cells of its sequence, in a file that kvant_seq_load reads too: what was loaded
 * goes on without being read again. Loading replaces the conversation, or changes nothing. The template must
 * be the same. */
KVANT_API KVANT_MUST_USE kvant_status kvant_chat_save(const kvant_chat *chat, const char *path);
KVANT_API KVANT_MUST_USE kvant_status kvant_chat_load(kvant_chat *chat, const char *path);
/* The name of the renderer in use. */
KVANT_API const char *kvant_chat_template(const kvant_chat *chat);

/* ---- figures ----------------------------------------------------------------------------------------- */

typedef struct kvant_session_info {
    size_t size;
    int32_t n_ctx, n_batch, n_sequences;
    int64_t kv_bytes_per_token, kv_bytes_total, kv_bytes_used, scratch_bytes;
    int64_t weight_bytes_per_token; /* weight bytes read to decode one token */
    int32_t n_kv_rows;              /* rows for kvant_session_kv_row */
    const char *centre_source;      /* "calibrated", "key biases" or "none" (static) */
    int32_t n_devices;              /* rows for kvant_session_device */
    int64_t crossed_bytes;          /* copied between devices since the session was created */
} kvant_session_info;
#define KVANT_SESSION_INFO_INIT KVANT_ZERO_OF_SIZE(kvant_session_info)
KVANT_API void kvant_session_get_info(const kvant_session *session, kvant_session_info *info);

/* One line of the KV table: layers [first, last] that store K and V alike. Strings are static. */
typedef struct kvant_kv_row {
    size_t size;
    int32_t first_layer, last_layer;
    const char *type_k, *type_v, *layout_k, *layout_v, *device;
    int32_t window; /* 0 = all positions */
    int64_t bytes_per_token, bytes_total;
    int32_t centre_pairs; /* rotary pairs of each KV head that are centred: each costs two products for each
                             cell and query head; 0: keys are stored as they are */
    double k_bits;        /* for a number of a key, scales included */
    int32_t n_cells;      /* tokens that these layers hold: n_ctx, or what their window asks for */
    int32_t rotation_k, rotation_v; /* numbers that a Hadamard transform mixes before coding; 1: none */
} kvant_kv_row;
#define KVANT_KV_ROW_INIT KVANT_ZERO_OF_SIZE(kvant_kv_row)
KVANT_API KVANT_MUST_USE kvant_status kvant_session_kv_row(const kvant_session *session, int32_t i,
                                                           kvant_kv_row *row);

/* What a device of the model holds: weights for all sessions, cache (when full) and scratch of this one.
 * Strings live as long as the model. */
typedef struct kvant_device_row {
    size_t size;
    const char *name, *kernels; /* "cpu:0", "avx512" */
    int32_t n_threads;          /* of the host that work for it */
    int32_t n_layers;           /* whose weights it has */
    int64_t weight_bytes, kv_bytes, scratch_bytes;
} kvant_device_row;
#define KVANT_DEVICE_ROW_INIT KVANT_ZERO_OF_SIZE(kvant_device_row)
KVANT_API KVANT_MUST_USE kvant_status kvant_session_device(const kvant_session *session, int32_t i,
                                                           kvant_device_row *row);

#ifdef __cplusplus
}
#endif
#endif
