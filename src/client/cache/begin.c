/* What of a cache's operations begins next over rails, and what is said for it on the stream beside them. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "client/tier.h"
#include "client/verbs.h"
#include "verbs.h"

/* ---- requests ---- */

/* GETs that go in one MGET. */
struct batch {
    struct client_job *jobs[CLIENT_HOLD_MAX];
    size_t n;
};

static void ask_batch(struct penstock_session *s, struct batch *batch)
{
    if (batch->n > 0)
        client_control_ask(s, PENSTOCK_OP_MGET, batch->jobs, batch->n);
    batch->n = 0;
}

static void ask_job(struct penstock_session *s, struct client_job *job, struct batch *batch)
{
    struct client_cache_verbs *c = s->cache->verbs;
    uint8_t op = PENSTOCK_OP_GET;
    client_job_put(job, &c->under_way);
    job->alone = c->holding == 0;
    c->holding += client_job_moves(job->op);
    if (job->op->blobs.action == PENSTOCK_BLOB_GET && client_job_has(s, PENSTOCK_FEATURE_MGET)) {
        batch->jobs[batch->n++] = job;
        return;
    }
    if (job->op->blobs.action == PENSTOCK_BLOB_PUT)
        op = PENSTOCK_OP_ALLOC;
    else if (job->op->blobs.action == PENSTOCK_BLOB_REMOVE)
        op = PENSTOCK_OP_REMOVE;
    else if (client_job_has(s, PENSTOCK_FEATURE_EXISTS))
        op = PENSTOCK_OP_EXISTS;
    ask_batch(s, batch); /* which comes before it */
    client_control_ask(s, op, &job, 1);
}

static bool has_window(const struct client_cache_verbs *c)
{
    return c->holding < c->window;
}

static bool looks(const struct client_op *op)
{
    return op->blobs.action == PENSTOCK_BLOB_GET || op->blobs.action == PENSTOCK_BLOB_EXISTS;
}

static bool in_the_way(const struct base_list *list, const struct client_op *op, const struct penstock_key *key)
{
    base_list_for_each (node, list) {
        const struct client_job *job = base_list_entry(node, struct client_job, node);
        if (client_job_same_key(job, key) && !(looks(op) && looks(job->op)))
            return true;
    }
    return false;
}

static bool may_begin_blob(const struct penstock_session *s, const struct client_op *op)
{
    const struct client_cache_verbs *c = s->cache->verbs;
    const struct penstock_key *key = &op->blobs.at[op->sent].key;
    bool one_by_one = !client_job_has(s, PENSTOCK_FEATURE_MGET);
    return !(one_by_one && !(base_list_empty(&c->under_way) && base_list_empty(&c->written))) &&
           (!client_job_moves(op) || has_window(c)) && !in_the_way(&c->under_way, op, key) &&
           !in_the_way(&c->written, op, key);
}

static struct client_job *take_job(struct penstock_session *s, struct client_op *op)
{
    struct client_cache_verbs *c = s->cache->verbs;
    struct client_job *job = base_list_entry(c->free.next, struct client_job, node);
    job->op = op;
    job->pins = 0;
    client_job_put(job, &c->under_way);
    return job;
}

static bool begin_blob(struct penstock_session *s, struct client_op *op, struct batch *batch)
{
    if (!may_begin_blob(s, op))
        return false;
    struct client_job *job = take_job(s, op);
    job->blob = op->sent++;
    const struct penstock_blob *blob = &op->blobs.at[job->blob];
    job->key = blob->key;
    job->range = (struct rail_range){ .remote_offset = blob->from_bytes, /* in its slot */
                                      .local_offset = blob->at_bytes,
                                      .len_bytes = blob->len_bytes ? blob->len_bytes : s->cache->arena.blob_bytes };
    if (op->sent == op->plan.n_requests)
        base_list_remove(&op->queue);
    ask_job(s, job, batch);
    return true;
}

/* ---- raw ---- */

/* What reads or writes a place waits for what writes it, and the other way round. */
static bool overlaps(const struct client_cache_verbs *c, const struct client_op *op, uint64_t begin, uint64_t end)
{
    base_list_for_each (node, &c->under_way) {
        const struct client_job *job = base_list_entry(node, struct client_job, node);
        if ((op->blobs.write || job->op->blobs.write) && job->begin < end && begin < job->end)
            return true;
    }
    return false;
}

static int lay_ranges(const struct penstock_session *s, struct client_op *op, struct penstock_error *error)
{
    const struct client_plan *plan = &op->plan;
    const uintptr_t address = (uintptr_t)s->regions.at[op->region].address;
    struct rail_range *ranges = calloc(plan->n_requests + 1, sizeof *ranges);
    if (!ranges)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu ranges", plan->n_requests);
    for (size_t i = 0; i < plan->n_requests; i++)
        ranges[i] = (struct rail_range){ .remote_offset = plan->requests[i].offset_bytes,
                                         .local_offset = (uintptr_t)plan->pieces[i].iov_base - address,
                                         .len_bytes = plan->requests[i].len_bytes };
    op->split = (struct client_split){ .rails = ranges, .n_rails = plan->n_requests };
    return 0;
}

static bool begin_raw(struct penstock_session *s, struct client_op *op)
{
    uint64_t begin = UINT64_MAX, end = 0;
    struct penstock_error error;
    for (size_t i = 0; i < op->plan.n_requests; i++) {
        const struct client_request *r = &op->plan.requests[i];
        begin = base_min_u64(begin, r->offset_bytes);
        end = base_max_u64(end, r->offset_bytes + r->len_bytes);
    }
    if (overlaps(s->cache->verbs, op, begin, end))
        return false;
    struct client_job *job = take_job(s, op);
    job->begin = begin;
    job->end = end;
    op->sent = op->plan.n_requests;
    op->answered = op->sent - 1; /* one job for all */
    base_list_remove(&op->queue);
    int code = lay_ranges(s, op, &error);
    code = code ? code : client_job_submit(s, job, op->blobs.write, op->split.rails, op->split.n_rails, &error);
    if (code) {
        job->transfer = (struct rail_transfer){ .user = s };
        client_job_moved(&job->transfer, code, &error);
    }
    return true;
}

/* ---- all of it ---- */

/* The next that was submitted; false: it has to wait, as all behind it. */
static bool begin_next(struct penstock_session *s, struct batch *batch)
{
    const struct client_cache_verbs *c = s->cache->verbs;
    struct penstock_error error;
    if (base_list_empty(&s->unsent[0]) || base_list_empty(&c->free) || !client_control_has_room(s))
        return false;
    struct client_op *op = base_list_entry(s->unsent[0].next, struct client_op, queue);
    int code = op->blobs.uses_region ? client_verbs_know(s, &s->regions.at[op->region], &error) : 0;
    if (code) {
        client_job_fail_op(s, op, code, &error);
        client_job_end_op(s, op);
        return true;
    }
    return op->kind == CLIENT_OP_RAW ? begin_raw(s, op) : begin_blob(s, op, batch);
}

void client_jobs_begin(struct penstock_session *s)
{
    struct client_cache_verbs *c = s->cache->verbs;
    struct batch batch = { .n = 0 };
    base_list_for_each (node, &c->written) {
        struct client_job *job = base_list_entry(node, struct client_job, node);
        if (!client_control_has_room(s))
            break;
        client_job_put(job, &c->under_way);
        client_control_ask(s, PENSTOCK_OP_COMMIT, &job, 1);
    }
    client_control_release(s);
    base_list_for_each (node, &c->again)
        if (has_window(c) && client_control_has_room(s))
            ask_job(s, base_list_entry(node, struct client_job, node), &batch);
    while (base_list_empty(&c->again) && begin_next(s, &batch))
        ;
    ask_batch(s, &batch);
}
