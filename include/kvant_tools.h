/* kvant_tools.h: what surrounds a runtime: look into a model file, write it with other types, measure the
 * machine, check the kernels. The rules of kvant.h hold here too: opaque handles, a status and a message for
 * every failure, nothing printed. All functions may be called from any thread; a kvant_file is read-only and
 * may be shared. */
#ifndef KVANT_TOOLS_H
#define KVANT_TOOLS_H

#include "kvant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- inspect ------------------------------------------------------------------------------------------- */

/* A GGUF file (or the first of a split set), opened for its description only. */
typedef struct kvant_file kvant_file;

/* The whole container is validated, as when a model is opened; no architecture or tokenizer is looked for. */
KVANT_API KVANT_MUST_USE kvant_status kvant_file_open(kvant_file **out, const char *path);
KVANT_API void kvant_file_close(kvant_file *file);

typedef struct kvant_file_info {
    size_t size;
    int32_t version; /* of the format */
    int64_t n_values, n_tensors;
    int64_t n_params;              /* numbers in all tensors */
    int64_t tensor_bytes, n_bytes; /* of all tensors; of all files of the set */
} kvant_file_info;
#define KVANT_FILE_INFO_INIT KVANT_ZERO_OF_SIZE(kvant_file_info)
KVANT_API void kvant_file_get_info(const kvant_file *file, kvant_file_info *info);

/* A key of the metadata. Strings are borrowed from the file. */
typedef struct kvant_file_value {
    size_t size;
    const char *key;
    const char *type; /* "u32" "string" ..., of the elements if it is an array */
    bool is_array;
    int64_t count; /* elements of an array, else 1 */
} kvant_file_value;
#define KVANT_FILE_VALUE_INIT KVANT_ZERO_OF_SIZE(kvant_file_value)
KVANT_API KVANT_MUST_USE kvant_status kvant_file_get_value(const kvant_file *file, int64_t i,
                                                           kvant_file_value *value);
/* The index of a key, -1 if the file does not have it. */
KVANT_API int64_t kvant_file_find_value(const kvant_file *file, const char *key);
/* The value as text, NUL-terminated and cut to `capacity` bytes between characters: a string as it is,
 * numbers in decimal, of an array the first `max_items` elements. *n_bytes (may be NULL) is the length of the
 * whole text. */
KVANT_API KVANT_MUST_USE kvant_status kvant_file_value_text(const kvant_file *file, int64_t i,
                                                            int64_t max_items, char *text, size_t capacity,
                                                            size_t *n_bytes);

/* A tensor as it lies in the file. Strings are borrowed from the file. */
typedef struct kvant_file_tensor {
    size_t size;
    const char *name, *type;
    int32_t n_dims;
    int64_t dims[4]; /* dims[0] = numbers in a row; unused ones are 1 */
    int64_t n_bytes;
} kvant_file_tensor;
#define KVANT_FILE_TENSOR_INIT KVANT_ZERO_OF_SIZE(kvant_file_tensor)
KVANT_API KVANT_MUST_USE kvant_status kvant_file_get_tensor(const kvant_file *file, int64_t i,
                                                            kvant_file_tensor *tensor);

/* How weights of a type would be held and multiplied on a device. Strings are static. */
typedef struct kvant_weight_plan {
    size_t size;
    const char *device;
    const char *layout; /* in memory; in the file it is always "rows" */
    const char *kernel; /* of the matrix product in the fast mode */
} kvant_weight_plan;
#define KVANT_WEIGHT_PLAN_INIT KVANT_ZERO_OF_SIZE(kvant_weight_plan)
/* `cpu_mask` as in kvant_model_options. */
KVANT_API KVANT_MUST_USE kvant_status kvant_get_weight_plan(kvant_weight_plan *plan, const char *type,
                                                            const char *cpu_mask);

/* A file of kvant_seq_save or kvant_chat_save, checked as when it is loaded, but for the model. */
typedef struct kvant_snapshot kvant_snapshot;

/* Whether a file begins as one. */
KVANT_API bool kvant_is_snapshot(const char *path);
KVANT_API KVANT_MUST_USE kvant_status kvant_snapshot_open(kvant_snapshot **out, const char *path);
KVANT_API void kvant_snapshot_close(kvant_snapshot *snapshot);

typedef struct kvant_snapshot_info {
    size_t size;
    const char *model, *architecture, *fingerprint; /* borrowed from the snapshot */
    int32_t version, n_layers, n_embd, n_vocab;
    int64_t n_tokens, end;       /* tokens; last position + 1 */
    int32_t n_spans, n_turns;    /* runs of positions, and how many frames they are in */
    int64_t n_bytes, note_bytes; /* of the file; of what its program kept with it (a conversation) */
    int32_t n_rows;              /* rows for kvant_snapshot_row */
} kvant_snapshot_info;
#define KVANT_SNAPSHOT_INFO_INIT KVANT_ZERO_OF_SIZE(kvant_snapshot_info)
KVANT_API void kvant_snapshot_get_info(const kvant_snapshot *snapshot, kvant_snapshot_info *info);

/* Layers [first, last] that are coded alike. Strings are static. */
typedef struct kvant_snapshot_layers {
    size_t size;
    int32_t first_layer, last_layer;
    const char *type_k, *type_v;
    int32_t n_kv_heads, k_dim, v_dim;
    int32_t k_rotation, v_rotation; /* block of the Hadamard transform; 1: none */
    int32_t centre_pairs;           /* 0: keys are not centred */
    int32_t n_rot;                  /* dimensions that are rotated by position */
    int64_t n_cells, n_bytes;       /* that the file has of each of the layers; of all of them */
} kvant_snapshot_layers;
#define KVANT_SNAPSHOT_LAYERS_INIT KVANT_ZERO_OF_SIZE(kvant_snapshot_layers)
KVANT_API KVANT_MUST_USE kvant_status kvant_snapshot_row(const kvant_snapshot *snapshot, int32_t i,
                                                         kvant_snapshot_layers *row);

/* ---- quantize ------------------------------------------------------------------------------------------ */

typedef struct kvant_quantize_options {
    size_t size;
    const char *type; /* of the weights: "q8_0", "q4_k", ...; required */
    /* Of the output projection (output.weight, or token_embd.weight where the two are one). NULL: the
     * weights' type, but not fewer bits than q8_0, because every logit goes through this one matrix. */
    const char *output_type;
    const char
        *embedding_type; /* of a token_embd.weight that is not the output too; NULL: the weights' type */
    bool keep_output;    /* leaves the output projection as it is */
    int32_t n_threads;   /* 0 = one per usable core */
    kvant_progress_fn progress;
    void *user;
} kvant_quantize_options;
#define KVANT_QUANTIZE_OPTIONS_INIT KVANT_ZERO_OF_SIZE(kvant_quantize_options)

typedef struct kvant_quantize_result {
    size_t size;
    int64_t n_converted, n_kept;
    int64_t n_requantized; /* of the converted: had been quantized before, so that their errors add up */
    int64_t n_misfits;     /* of the kept: rows that are no multiple of the type's block */
    int64_t bytes_in, bytes_out;
} kvant_quantize_result;
#define KVANT_QUANTIZE_RESULT_INIT KVANT_ZERO_OF_SIZE(kvant_quantize_result)

/* Writes the model at `in_path` to `out_path` (may be the same) with its weights in another type. Tensors of
 * two or more dimensions are converted; vectors, and matrices that already have the type or whose rows do not
 * fit its block, are copied. Metadata is copied, except general.file_type, which would no longer be true, and
 * the keys of a split. Nothing appears under `out_path` before all of it is written. `result` may be NULL. */
KVANT_API KVANT_MUST_USE kvant_status kvant_quantize(const char *in_path, const char *out_path,
                                                     const kvant_quantize_options *options,
                                                     kvant_quantize_result *result);
/* The types that can be written, by index; NULL behind the last. */
KVANT_API const char *kvant_quantize_type(int32_t i);

/* ---- calibrate ----------------------------------------------------------------------------------------- */

/* What a number of centred pairs gave. */
typedef struct kvant_calibrate_trial {
    int32_t n_pairs; /* rotary pairs of each KV head */
    double kl;       /* mean KL divergence from a cache of f32, with K in 4 bits and V in f32 */
} kvant_calibrate_trial;

enum { KVANT_CALIBRATE_TRIALS = 6 };

typedef struct kvant_calibrate_options {
    size_t size;
    kvant_progress_fn progress;
    void *user;
} kvant_calibrate_options;
#define KVANT_CALIBRATE_OPTIONS_INIT KVANT_ZERO_OF_SIZE(kvant_calibrate_options)

typedef struct kvant_calibrate_result {
    size_t size;
    int32_t n_tokens; /* of the text */
    int32_t n_pairs;  /* the fewest that are within a few per cent of the best */
    int32_t n_trials;
    kvant_calibrate_trial trials[KVANT_CALIBRATE_TRIALS];
} kvant_calibrate_result;
#define KVANT_CALIBRATE_RESULT_INIT KVANT_ZERO_OF_SIZE(kvant_calibrate_result)

/* Runs the model over a text of its own, takes the mean key of each KV head and measures how many rotary
 * pairs of it are worth centring; writes both to `path`, for centre_path of kvant_session_options. The same
 * model on the same kind of processor always gives the same file; nothing appears under `path` before it is
 * complete. Takes as long as reading about 4,000 tokens with --act f32. `options` and `result` may be NULL.
 */
KVANT_API KVANT_MUST_USE kvant_status kvant_calibrate(kvant_model *model, const char *path,
                                                      const kvant_calibrate_options *options,
                                                      kvant_calibrate_result *result);

/* ---- measure ------------------------------------------------------------------------------------------- */

/* The rate at which n_threads (0 = one per usable core) read memory that no cache holds, the best of a few
 * passes, in bytes per second: what the speed of decoding is compared with. Takes about `seconds`, plus the
 * time to fill the memory it reads (128 MiB, or what the machine can spare, at least 32 MiB). */
KVANT_API KVANT_MUST_USE kvant_status kvant_measure_bandwidth(double *bytes_per_second, int32_t n_threads,
                                                              double seconds);

/* ---- placement ----------------------------------------------------------------------------------------- */

/* A step of an evaluation, as it is run. Strings are static, but for `label`, valid during the call. */
typedef struct kvant_plan_node {
    size_t size;
    const char *label;         /* the part of the model: "blk.3", "input", "output" */
    const char *op, *device;   /* of a "copy" between devices: the one it goes to */
    const char *kernel;        /* "reference": the slow scalar definition of the op, for want of any other */
    const char *type, *layout; /* of the weights; "K/V" of a cache; else of the result */
    int64_t bytes;             /* of the same: of a cache when it is full */
    int32_t stage;             /* nodes of a stage run side by side */
} kvant_plan_node;
#define KVANT_PLAN_NODE_INIT KVANT_ZERO_OF_SIZE(kvant_plan_node)
typedef void (*kvant_plan_fn)(void *user, const kvant_plan_node *node);

/* Every step of an evaluation of n_tokens (1: decoding; at most the session's n_batch) with logits of the
 * last, in order. */
KVANT_API KVANT_MUST_USE kvant_status kvant_dump_plan(kvant_session *session, int32_t n_tokens,
                                                      kvant_plan_fn node, void *user);

/* ---- check --------------------------------------------------------------------------------------------- */

typedef enum kvant_kernel_outcome {
    KVANT_KERNEL_OK,
    KVANT_KERNEL_FAILED,
    KVANT_KERNEL_SKIPPED /* the processor, or the mask, lacks the instruction set */
} kvant_kernel_outcome;

typedef struct kvant_kernel_report {
    size_t size;
    const char *name, *role, *cpu; /* static */
    kvant_kernel_outcome outcome;
    const char *message; /* what differed, or why it was skipped; "" if all is well. During the call only */
    double worst;        /* the largest error as a share of what is allowed; 0 where results must be exact */
    /* A report about speed follows for each shape that is timed; "" in one about correctness. */
    const char *shape;
    double seconds;              /* of one call, the least of many */
    double gb_per_s, gmac_per_s; /* bytes read and written; multiply-adds, 0 where there are none */
} kvant_kernel_report;
typedef void (*kvant_kernel_fn)(void *user, const kvant_kernel_report *report);

typedef struct kvant_check_options {
    size_t size;
    const char *filter;     /* only kernels whose name or role holds this; NULL = all */
    const char *cpu_mask;   /* as in kvant_model_options */
    uint64_t seed;          /* of the random inputs */
    bool bench;             /* times each kernel too */
    kvant_kernel_fn report; /* after each kernel; may be NULL */
    void *user;
} kvant_check_options;
#define KVANT_CHECK_OPTIONS_INIT KVANT_ZERO_OF_SIZE(kvant_check_options)

typedef struct kvant_check_result {
    size_t size;
    int32_t n_ok, n_failed, n_skipped;
} kvant_check_result;
#define KVANT_CHECK_RESULT_INIT KVANT_ZERO_OF_SIZE(kvant_check_result)

/* Runs every kernel that the machine can run against its scalar reference on random and pathological input. A
 * wrong kernel is counted and reported, the call itself succeeds; one that reads outside of its input ends
 * the process by a fault. Both arguments may be NULL. */
KVANT_API KVANT_MUST_USE kvant_status kvant_check_kernels(const kvant_check_options *options,
                                                          kvant_check_result *result);

/* A law of layouts, tried with every type that a cache can have. */
typedef struct kvant_law_report {
    size_t size;
    const char *law; /* "cells are written as in plain rows" */
    bool holds;
    int32_t n_cases;
    const char *message; /* the first fault; "" if there is none. During the call only */
} kvant_law_report;
typedef void (*kvant_law_fn)(void *user, const kvant_law_report *report);

/* What a cell of 2 heads of 128 numbers costs on one thread, in nanoseconds: K and V written, K read to
 * floats, attended to by 5 tokens with 8 query heads; in the layout, and in plain rows. */
typedef struct kvant_layout_speed {
    size_t size;
    const char *type; /* static */
    double write_ns, read_ns, attend_ns;
    double rows_write_ns, rows_read_ns, rows_attend_ns;
} kvant_layout_speed;
typedef void (*kvant_layout_speed_fn)(void *user, const kvant_layout_speed *speed);

typedef struct kvant_layout_check {
    size_t size;
    const char *cpu_mask;        /* as in kvant_model_options */
    uint64_t seed;               /* of the random inputs */
    kvant_law_fn law;            /* after each law; may be NULL */
    kvant_layout_speed_fn speed; /* after each type; NULL: nothing is timed */
    void *user;
} kvant_layout_check;
#define KVANT_LAYOUT_CHECK_INIT KVANT_ZERO_OF_SIZE(kvant_layout_check)

typedef struct kvant_layout_result {
    size_t size;
    int32_t n_holding, n_broken; /* laws */
} kvant_layout_result;
#define KVANT_LAYOUT_RESULT_INIT KVANT_ZERO_OF_SIZE(kvant_layout_result)

/* The registered layouts by index, those of kvant_ext.h behind the others; NULL behind the last. */
KVANT_API const char *kvant_layout_name(int32_t i);
/* Tries the laws on a registered layout with its kernels. A broken law is counted and reported, the call
 * itself succeeds; a kernel that leaves its memory may end the process. `check` and `result` may be NULL. */
KVANT_API KVANT_MUST_USE kvant_status kvant_check_layout(const char *name, const kvant_layout_check *check,
                                                         kvant_layout_result *result);

#ifdef __cplusplus
}
#endif
#endif
