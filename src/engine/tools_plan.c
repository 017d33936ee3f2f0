/* tools_plan.c: the placement dump of a plan with what each node works on. A node names its store; weights
 * are the inputs that no node has made. */
#include "engine/engine.h"
#include "kvant_tools.h"

#include <stdio.h>

typedef struct dump {
    kvant_plan_fn node;
    void *user;
    KV_VEC(const kv_tensor *) made; /* by the nodes so far, and by copies */
    bool failed;
    char type[64], layout[96];
} dump;

static bool is_made(const dump *d, const kv_tensor *t) {
    for (size_t i = 0; i < d->made.count; i++)
        if (d->made.at[i] == t) return true;
    return false;
}

static void describe(dump *d, const kv_tensor *t) {
    snprintf(d->type, sizeof d->type, "%s", t->dtype->name);
    snprintf(d->layout, sizeof d->layout, "%s", t->layout->name);
}

/* Bytes of K and V of all cells. */
static int64_t describe_store(dump *d, const kv_store *s) {
    snprintf(d->type, sizeof d->type, "%s/%s", s->k.dtype->name, s->v.dtype->name);
    snprintf(d->layout, sizeof d->layout, "%s/%s", s->k.layout->name, s->v.layout->name);
    return (int64_t)(kv_tensor_bytes(&s->k) + kv_tensor_bytes(&s->v));
}

/* The largest decides what they are called: a bias is not what a matrix product is about. */
static int64_t describe_weights(dump *d, const kv_node *n) {
    size_t sum = 0, most = 0;
    for (int i = 0; i < KV_MAX_INPUTS; i++) {
        if (!n->in[i] || is_made(d, n->in[i])) continue;
        size_t bytes = kv_tensor_bytes(n->in[i]);
        if (bytes > most) describe(d, n->in[i]), most = bytes;
        sum += bytes;
    }
    return (int64_t)sum;
}

static int64_t describe_node(dump *d, const kv_plan_line *line) {
    const kv_node *n = line->node;
    const kv_store *store = n->reads ? n->reads : n->writes;
    if (line->copy) return describe(d, line->copy), (int64_t)line->bytes;
    if (store) return describe_store(d, store);
    int64_t bytes = describe_weights(d, n);
    if (bytes || !n->out) return bytes;
    return describe(d, n->out), (int64_t)kv_tensor_bytes(n->out);
}

static void pass_line(void *user, const kv_plan_line *line) {
    dump *d = user;
    d->type[0] = d->layout[0] = 0;
    kvant_plan_node node = {.size = sizeof node,
                            .label = line->label ? line->label : "",
                            .op = line->op,
                            .device = line->device,
                            .kernel = line->kernel,
                            .type = d->type,
                            .layout = d->layout,
                            .bytes = describe_node(d, line),
                            .stage = line->stage};
    const kv_tensor *made = line->copy ? line->copy : line->node->out;
    if (made && !kv_vec_push(&d->made, made)) d->failed = true;
    d->node(d->user, &node);
}

kvant_status kvant_dump_plan(kvant_session *s, int32_t n_tokens, kvant_plan_fn node, void *user) {
    if (n_tokens < 1 || n_tokens > s->n_batch)
        return kv_fail(KVANT_INVALID, "a plan for %d tokens: must be 1 to %d", n_tokens, s->n_batch);
    kv_plan_slot *slot;
    dump d = {.node = node, .user = user};
    KV_TRY(kv_session_find_plan(s, n_tokens, 1, &slot));
    kv_plan_dump(slot->plan, pass_line, &d);
    kv_vec_clear(&d.made);
    return d.failed ? KVANT_NO_MEMORY : KVANT_OK;
}
