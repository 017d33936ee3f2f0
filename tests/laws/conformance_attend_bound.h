/* conformance_attend_bound.h: how far attention may be from its reference. The case is computed once more, in
 * double, to know how much each score and each value counts. With p the probabilities, o = sum p v:
 *
 *     a score off by e changes o[d] by p e |v[d] - o[d]|, to first order
 *     f32:  e = rounding of a dot product, as a share of |q| (|k| + 2 |mean|); sums over cells likewise
 *     a8, queries: each number of q is off by a uniform share of a step = max |q| / 127, so a score by
 *           step / sqrt(12) * |k| (standard deviation; scores of random cells are independent)
 *     a8, probabilities: p * scale of a value is off by a uniform share of a step = max (p * scale) / 127;
 *           steps of different cells and of quants with a minimum differ by at most SPREAD
 *
 * Standard deviations count SIGMAS times. Norms stand for vectors where the transform mixes their numbers. */
#pragma once

enum { CONF_SIGMAS = 8, CONF_SPREAD = 3 };

/* A cell as a query of one KV head sees it. */
typedef struct conf_seen {
    float *key, *value; /* all heads */
    float *coded;       /* the key without the centre */
    double p, score, e, sigma;
} conf_seen;

static inline double conf_product(const float *a, const float *b, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static inline double conf_length(const float *a, int32_t n) { return sqrt(conf_product(a, a, n)); }

static inline double conf_most(const float *a, int32_t n) {
    double most = 0;
    for (int32_t i = 0; i < n; i++)
        if (fabs((double)a[i]) > most) most = fabs((double)a[i]);
    return most;
}

/* Every cell of a sequence, decoded. */
static inline conf_seen *conf_decode_cells(conf_case *c, const kv_attend_params *p, const kv_seq_view *seq) {
    const kv_store *s = p->store;
    kv_store plain = *s;
    plain.centre = NULL;
    conf_seen *cells = conf_alloc(c, seq->n_cells, sizeof *cells), *x = cells;
    for (int32_t r = seq->first_run; r < seq->first_run + seq->n_runs; r++)
        for (int32_t i = 0; i < p->batch->runs[r].n_cells; i++, x++) {
            int32_t cell = p->batch->runs[r].first_cell + i;
            int64_t stored = p->batch->runs[r].stored + i;
            x->key = conf_alloc(c, s->n_kv_heads * s->k_head.dim, sizeof(float));
            x->coded = conf_alloc(c, s->n_kv_heads * s->k_head.dim, sizeof(float));
            x->value = conf_alloc(c, s->n_kv_heads * s->v_head.dim, sizeof(float));
            assert_int_equal(kv_store_read_key(x->key, s, cell, stored, p->rope), KVANT_OK);
            assert_int_equal(kv_store_read_key(x->coded, &plain, cell, stored, p->rope), KVANT_OK);
            assert_int_equal(kv_store_read_value(x->value, s, cell), KVANT_OK);
        }
    return cells;
}

/* Score of a cell and how far it may be off. `q` is rotated and turned; `step` of its numbers, or 0. */
static inline void conf_score(const kv_attend_params *p, conf_seen *x, const float *q, double step,
                              int32_t kv_head) {
    int32_t dim = p->store->k_head.dim;
    const float *key = x->key + kv_head * dim, *coded = x->coded + kv_head * dim;
    double scale = (double)p->scale, mean = 0;
    for (int32_t d = 0; d < dim && p->store->centre; d++) mean += pow((double)key[d] - (double)coded[d], 2);
    double length = conf_length(coded, dim) + 2 * sqrt(mean);
    x->score = conf_product(q, key, dim) * scale;
    x->e = scale * conf_length(q, dim) * length * conf_rounding(3 * dim);
    x->sigma = scale * step / sqrt(12) * conf_length(coded, dim);
    if (p->softcap > 0) {
        x->score = (double)p->softcap * tanh(x->score / (double)p->softcap);
        x->e += (double)p->softcap * 0x1p-20;
    }
}

/* Probabilities of the n cells at `x`, of which those with p < 0 are not seen. Returns the largest error of a
 * score, for all may be measured against any one of them. */
static inline double conf_soften(conf_seen *x, int64_t n, double *most) {
    double max = -INFINITY, sum = 0, e = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i].p >= 0) max = fmax(max, x[i].score), e = fmax(e, x[i].e);
    for (int64_t i = 0; i < n; i++) sum += x[i].p = x[i].p < 0 ? 0 : exp(x[i].score - max);
    for (int64_t i = 0; i < n; i++) x[i].p /= sum;
    *most = 1 / sum;
    return e;
}

/* Bounds of the v_dim numbers of one query head. */
static inline void conf_bound_head(double *bound, const kv_attend_params *p, const conf_seen *x, int64_t n,
                                   int32_t kv_head, double e, double most) {
    int32_t dim = p->store->v_head.dim;
    double share = p->act ? CONF_SPREAD * most / 127 / sqrt(12) : 0, norms = 0;
    double *o = kv_alloc((size_t)dim * 4, sizeof *o), *linear = o + dim, *sum = linear + dim,
           *square = sum + dim;
    assert_non_null(o);
    for (int64_t i = 0; i < n; i++)
        for (int32_t d = 0; x[i].p > 0 && d < dim; d++)
            o[d] += x[i].p * (double)x[i].value[kv_head * dim + d];
    for (int64_t i = 0; i < n; i++) {
        const float *value = x[i].value + kv_head * dim;
        double length = x[i].p > 0 ? conf_length(value, dim) : 0, mean = length / sqrt(dim);
        norms += x[i].p * length;
        for (int32_t d = 0; x[i].p > 0 && d < dim; d++) {
            double v = fabs((double)value[d]), off = v + fabs(o[d]);
            double score = x[i].p * x[i].sigma * off, weight = share * (off + mean);
            linear[d] += x[i].p * 2 * e * off;
            sum[d] += x[i].p * v;
            square[d] += score * score + weight * weight;
        }
    }
    bool rotated = p->store->v_head.rotation > 1;
    for (int32_t d = 0; d < dim; d++)
        bound[d] =
            linear[d] + (rotated ? norms : sum[d]) * conf_rounding(n + 64) + CONF_SIGMAS * sqrt(square[d]);
    kv_free(o);
}

/* Cells that the token sees get p = 0, others -1; their scores with the token's head. */
static inline void conf_score_head(conf_case *c, const kv_attend_params *p, const kv_seq_view *seq,
                                   int32_t token, int32_t head, conf_seen *x) {
    const kv_store *s = p->store;
    int32_t dim = s->k_head.dim, kv_head = head / (p->n_heads / s->n_kv_heads);
    float *row = conf_alloc(c, c->in[0]->cols, sizeof *row), *q = row + head * dim;
    float *turned = conf_alloc(c, dim, sizeof *turned), *shaped = conf_alloc(c, dim, sizeof *shaped);
    assert_int_equal(kv_read_row(row, c->in[0], token), KVANT_OK);
    if (p->rope->n_rot) kv_rope_rotate(q, p->rope, kv_tensor_row(c->in[1], token));
    for (int32_t r = seq->first_run; r < seq->first_run + seq->n_runs; r++) {
        const kv_run *run = &p->batch->runs[r];
        int32_t first, n = kv_run_visible(run, p->batch->pos[token], p->window, &first);
        memcpy(turned, q, (size_t)dim * sizeof *q);
        if (run->turn >= 0 && p->rope->n_rot)
            kv_rope_rotate(turned, p->rope, kv_tensor_row(c->in[1], run->turn));
        memcpy(shaped, turned, (size_t)dim * sizeof *q);
        kv_hadamard(shaped, dim, s->k_head.rotation);
        for (int32_t i = 0; i < run->n_cells; i++, x++) {
            x->p = i >= first && i < first + n ? 0 : -1;
            if (x->p >= 0) conf_score(p, x, turned, p->act ? conf_most(shaped, dim) / 127 : 0, kv_head);
        }
    }
}

static inline void conf_bound_attend(conf_case *c, const kv_attend_params *p) {
    int32_t v_dim = p->store->v_head.dim, group = p->n_heads / p->store->n_kv_heads;
    c->bound = conf_alloc(c, c->in[0]->rows * p->n_heads * v_dim, sizeof *c->bound);
    for (int32_t i = 0; i < p->batch->n_seqs; i++) {
        const kv_seq_view *seq = &p->batch->seqs[i];
        conf_seen *cells = conf_decode_cells(c, p, seq);
        for (int32_t t = seq->first_token; t < seq->first_token + seq->n_tokens; t++)
            for (int32_t h = 0; h < p->n_heads; h++) {
                double most;
                conf_score_head(c, p, seq, t, h, cells);
                double e = conf_soften(cells, seq->n_cells, &most);
                conf_bound_head(c->bound + ((size_t)t * (size_t)p->n_heads + (size_t)h) * (size_t)v_dim, p,
                                cells, seq->n_cells, h / group, e, most);
            }
    }
}
