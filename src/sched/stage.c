/* stage.c: stages from data dependences: scratch tensors by identity, stores by address. */
#include "sched/stage.h"

static bool uses(const kv_node *later, const kv_node *earlier) {
    for (int i = 0; i < KV_MAX_INPUTS; i++)
        if (later->in[i] && later->in[i] == earlier->out) return true;
    if (earlier->writes && (later->reads == earlier->writes || later->writes == earlier->writes)) return true;
    return later->writes && later->writes == earlier->reads;
}

kv_status kv_stage_assign(const kv_graph *g, int32_t *stage_of) {
    int32_t stage = 0;
    size_t begin = 0; /* of the current stage */
    for (size_t i = 0; i < g->nodes.count; i++) {
        const kv_node *n = g->nodes.at[i];
        bool next = begin < i && n->device != g->nodes.at[begin]->device;
        for (size_t j = begin; !next && j < i; j++) next = uses(n, g->nodes.at[j]);
        if (next) {
            stage++;
            begin = i;
        }
        stage_of[i] = stage;
    }
    return KVANT_OK;
}

int32_t kv_segment_begin(const kv_graph *g, int32_t i) {
    while (i > 0 && g->nodes.at[i - 1]->device == g->nodes.at[i]->device) i--;
    return i;
}

kv_status kv_stage_ends(kv_segment *s, const int32_t *stage_of) {
    int32_t *ends = kv_arena_alloc(s->arena, (size_t)s->n_nodes, sizeof *ends);
    if (!ends) return KVANT_NO_MEMORY;
    for (int32_t i = 0; i < s->n_nodes; i++)
        if (i + 1 == s->n_nodes || stage_of[i + 1] != stage_of[i]) ends[s->n_stages++] = i + 1;
    s->stage_ends = ends;
    return KVANT_OK;
}
