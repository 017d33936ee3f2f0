/* session_centre.c: which centre the keys of a session's layers have, if any: a calibrated one where the
 * options name a file, else the model's key biases. */
#include "engine/engine.h"

static kv_status find_set(kv_centre_set *set, const kvant_session *s, const kvant_session_options *o) {
    const kvant_model *m = s->model;
    if (o->centre == KVANT_CENTRE_OFF) return KVANT_OK;
    if (o->centre_path) return kv_centre_set_read(set, o->centre_path, &m->model.hparams, m->fingerprint);
    return kv_centre_set_from_biases(set, &m->model);
}

static kv_status make_centres(kvant_session *s, const kv_centre_set *set) {
    const kv_hparams *h = &s->model->model.hparams;
    s->centre_source = set->source;
    for (int32_t i = 0; set->n_layers && i < h->n_layers; i++)
        KV_TRY(kv_centre_set_layer(&s->centres[i], set, i, &s->ropes[h->layers[i].rope], &s->arena));
    return KVANT_OK;
}

kv_status kv_session_open_centres(kvant_session *s, const kvant_session_options *o) {
    s->centres = kv_arena_alloc(&s->arena, (size_t)s->model->model.hparams.n_layers, sizeof *s->centres);
    if (!s->centres) return KVANT_NO_MEMORY;
    if (s->centre_set) return make_centres(s, s->centre_set);
    kv_centre_set set = {0};
    kv_status status = find_set(&set, s, o);
    if (!status && o->centre_pairs && o->centre_pairs < set.n_pairs) set.n_pairs = o->centre_pairs;
    if (!status) status = make_centres(s, &set);
    kv_centre_set_clear(&set);
    return status;
}

const char *kv_session_centre_text(const kvant_session *s) {
    static const char *const texts[] = {
        [KV_CENTRE_NONE] = "none", [KV_CENTRE_BIASES] = "key biases", [KV_CENTRE_CALIBRATED] = "calibrated"};
    return texts[s->centre_source];
}
