/* kernel.h: the inner loops of the CPU device. A kernel is a pure function of its arguments: no globals, no
 * locks, no allocation. Each has a role (what it computes), the dtypes and layout it reads, and the
 * instruction set it needs: one row in kernels.inc, which makes it dispatched, tested against the scalar
 * truth and benchmarked.
 *
 * Alignment: unless a role says more, pointers are aligned to 4 bytes only. Nothing is read or written past
 * the sizes given. */
#pragma once

#include "base/cpu.h"
#include "base/status.h"
#include "dtype/dtype.h"
#include "layout/layout.h"

enum { KV_TILE_ROWS = 16 }; /* rows of a weight tile: the lanes of the matmul kernels */

/* matmul: y[j][r] = sum over c of W[r][c] * x[j][c] for the rows r of n_tiles tiles of the layout tile16x4.
 * Weights and activations are taken as what their dtypes decode to; sums in f32 (exact integers inside a
 * block). */
typedef struct kv_matmul_args {
    const void *w; /* first tile; aligned to 64 */
    size_t tile_bytes;
    int32_t n_tiles;
    int64_t cols;   /* a multiple of both block sizes */
    const void *x;  /* n_x rows of activations */
    size_t x_bytes; /* from one row of x to the next */
    int32_t n_x;
    float *y; /* y[j * y_step + r], r < 16 * n_tiles, all written */
    size_t y_step;
} kv_matmul_args;
typedef void kv_matmul_fn(const kv_matmul_args *args);

/* panel: y[j][r] += sum over c of w[c * 16 + r] * x[j][c], all f32: matmul's way for dtypes without a kernel.
 */
typedef struct kv_panel_args {
    const float *w; /* cols x 16, aligned to 64 */
    int64_t cols;
    const float *x;
    size_t x_step;
    int32_t n_x;
    float *y; /* 16 wide */
    size_t y_step;
} kv_panel_args;
typedef void kv_panel_fn(const kv_panel_args *args);

/* encode: n numbers to dtype `a`, bit for bit as its scalar encode (n a multiple of its block). */
typedef void kv_encode_fn(void *dst, const float *src, int64_t n);
/* encode_close: the same as its scalar encode_close. */
typedef kv_encode_fn kv_encode_close_fn;
/* decode: the other way, bit for bit as the scalar decode. */
typedef void kv_decode_fn(float *dst, const void *src, int64_t n);

/* score: s[i * s_step + c] = q[i] . K[c] for n_q queries and n_cells cells of one KV head. */
typedef struct kv_score_args {
    float *s;
    size_t
        s_step; /* a multiple of 16, at least n_cells rounded up to 16; entries past n_cells may be written */
    const float *q; /* n_q x head_dim, contiguous, aligned to 64 */
    int32_t n_q, head_dim;
    const void *k;         /* this head's part of the first cell */
    size_t k_bytes;        /* from one cell to the next */
    int32_t n_cells;       /* 1 to 64 */
    const kv_dtype *dtype; /* of K, for kernels that serve any */
} kv_score_args;
typedef void kv_score_fn(const kv_score_args *args);

/* accumulate: o[i][d] += sum over c of p[i * p_step + c] * V[c][d]. A probability that is exactly 0 skips its
 * cell: unused cells may hold anything, NaN included. p is not negative.
 *
 * Layouts with tiles: n_cells is a multiple of the tile, and head_dim of a block.
 *
 * b = a8: probabilities may be rounded. For each block of V, p times the range that the cell's block can code
 * is rounded to whole steps, so that the largest of the (at most 64) cells has 255 of them, or 127 where the
 * instruction set multiplies no more. A cell adds at most half a step times half of the range of the codes to
 * the error of o, beside f32 rounding; products below 2^-100 may count as 0. */
typedef struct kv_accumulate_args {
    float *o; /* n_q x head_dim, contiguous, aligned to 64 */
    const float *p;
    size_t p_step;
    int32_t n_q, head_dim;
    const void *v;   /* this head's part of the first cell, or of the first tile */
    size_t v_bytes;  /* from one cell, or tile, to the next */
    int32_t n_cells; /* 1 to 64; p has as many for each query */
    const kv_dtype *dtype;
} kv_accumulate_args;
typedef void kv_accumulate_fn(const kv_accumulate_args *args);

/* exp_sum: p[i] = exp(p[i] - max) for n numbers, -inf gives exactly 0; returns their sum. */
typedef float kv_exp_sum_fn(float *p, int32_t n, float max);

/* norm: y[i] = x[i] / sqrt(mean(x^2) + eps) * w[i]. y may be x. */
typedef void kv_norm_fn(float *y, const float *x, const float *w, int64_t n, float eps);

/* glu_silu, glu_gelu: y[i] = act(gate[i]) * up[i]; gelu is the tanh form. y may be gate. */
typedef void kv_glu_fn(float *y, const float *gate, const float *up, int64_t n);

typedef kv_glu_fn kv_glu_silu_fn, kv_glu_gelu_fn;

typedef enum kv_role {
    KV_ROLE_matmul,
    KV_ROLE_panel,
    KV_ROLE_encode,
    KV_ROLE_encode_close,
    KV_ROLE_decode,
    KV_ROLE_score,
    KV_ROLE_accumulate,
    KV_ROLE_exp_sum,
    KV_ROLE_norm,
    KV_ROLE_glu_silu,
    KV_ROLE_glu_gelu,
    KV_N_ROLES
} kv_role;

typedef struct kv_kernel {
    const char *name;
    kv_role role;
    const kv_dtype *a, *b;   /* weights and activations; K or V; what is coded. NULL: any */
    const kv_layout *layout; /* NULL: none or any */
    unsigned cpu;            /* flags it needs */
    union {
        kv_matmul_fn *matmul;
        kv_panel_fn *panel;
        kv_encode_fn *encode, *encode_close;
        kv_decode_fn *decode;
        kv_score_fn *score;
        kv_accumulate_fn *accumulate;
        kv_exp_sum_fn *exp_sum;
        kv_norm_fn *norm;
        kv_glu_fn *glu_silu, *glu_gelu;
    };
} kv_kernel;

enum { KV_MAX_OUTSIDE_KERNELS = 64 };

/* Adds a kernel of a layout from outside, for the rest of the process, in front of all others; `k` and what
 * it points to stay as they are. Callers take turns; readers need not wait. */
kv_status kv_kernel_add(const kv_kernel *k);

/* Those from outside, then all that were compiled in, best first within a role and dtype. */
int32_t kv_kernel_count(void);
const kv_kernel *kv_kernel_at(int32_t i);
const char *kv_role_name(kv_role role);
/* The first row that fits, or NULL. */
const kv_kernel *kv_kernel_pick(kv_role role, const kv_dtype *a, const kv_dtype *b, const kv_layout *layout,
                                unsigned cpu);
