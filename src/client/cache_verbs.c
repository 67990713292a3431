/* Blobs on their way over rails, and raw ranges. */
#include "client/cache_verbs.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "client/tier.h"
#include "client/verbs.h"

/* Under way at once: as over TCP, but a few blobs in any case. */
#define HOLD_BYTES (UINT64_C(64) << 20)
#define HOLD_MIN 4u

/* Of these jobs a peer lets a connection have a quarter of the arena's slots (protocol 2.3). How many slots there are
 * is known to the arena's first client alone; others find it out by being refused. */
static unsigned window_of(const struct penstock_cache *arena)
{
    if (arena->blob_bytes == 0)
        return CLIENT_HOLD_MAX;
    uint64_t quarter = base_max_u64(arena->arena_bytes / arena->blob_bytes / 4, 1);
    uint64_t bytes = base_max_u64(HOLD_BYTES / arena->blob_bytes, HOLD_MIN);
    return (unsigned)base_min_u64(base_min_u64(quarter, bytes), CLIENT_HOLD_MAX);
}

int client_cache_verbs_new(struct penstock_session *s, struct penstock_error *error)
{
    struct client_cache_verbs *c = calloc(1, sizeof *c);
    if (!c)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for blobs on their way");
    base_list_init(&c->free);
    base_list_init(&c->under_way);
    base_list_init(&c->again);
    base_list_init(&c->written);
    for (size_t i = 0; i < CLIENT_JOBS_MAX; i++)
        base_list_append(&c->free, &c->jobs[i].node);
    c->window = c->window_max = window_of(&s->cache->arena);
    free(s->cache->verbs);
    s->cache->verbs = c;
    return 0;
}

static bool has(const struct penstock_session *s, uint64_t feature)
{
    return s->cache->features & feature;
}

static bool is_put(const struct client_op *op)
{
    return op->kind == CLIENT_OP_BLOBS && op->blobs.action == PENSTOCK_BLOB_PUT;
}

static bool moves_bytes(const struct client_op *op)
{
    return op->blobs.action == PENSTOCK_BLOB_PUT || op->blobs.action == PENSTOCK_BLOB_GET;
}

/* ---- ends ---- */

/* Where nothing of it is under way, and nothing is to come. */
static void end_op(struct penstock_session *s, struct client_op *op)
{
    struct penstock_error words;
    bool drained = op->answered == op->sent;
    if (!(op->failed ? drained : drained && op->answered == op->plan.n_requests))
        return;
    int code = op->failed;
    const struct penstock_error *error = op->error;
    if (code == 0 && (code = s->tier->landed(s, op, &words)) != 0) {
        client_engine_name(s, &words);
        error = &words;
    }
    client_op_end(s, op, code, error);
}

/* It goes no further. */
static void fail_op(struct penstock_session *s, struct client_op *op, int code, const struct penstock_error *error)
{
    base_list_remove(&op->queue);
    if (op->failed)
        return;
    op->failed = code;
    if ((op->error = malloc(sizeof *op->error))) {
        *op->error = *error;
        client_engine_name(s, op->error);
    }
}

static void put_job(struct client_job *job, struct base_list *list)
{
    base_list_remove(&job->node);
    base_list_append(list, &job->node);
}

/* Its operation may end by it. */
static void end_job(struct penstock_session *s, struct client_job *job)
{
    struct client_op *op = job->op;
    put_job(job, &s->cache->verbs->free);
    job->op = NULL;
    op->answered++;
    end_op(s, op);
}

static void end_blob(struct penstock_session *s, struct client_job *job, uint8_t status)
{
    struct client_op *op = job->op;
    if (status == PENSTOCK_ST_OK) {
        op->blobs.at[job->blob].code = 0;
        op->landed_bytes += moves_bytes(op) ? job->range.len_bytes : 0;
    } else {
        client_cache_count(op, job->blob,
                           status == PENSTOCK_ST_MISS &&
                               (op->blobs.action == PENSTOCK_BLOB_GET || op->blobs.action == PENSTOCK_BLOB_EXISTS));
    }
    end_job(s, job);
}

/* ---- bytes ---- */

/* The slot is the peer's again: a pin by RELEASE, which is due, or by whatever is asked for next. */
static void give_back(struct penstock_session *s, const struct client_job *job)
{
    struct client_cache_verbs *c = s->cache->verbs;
    if (!is_put(job->op) && has(s, PENSTOCK_FEATURE_MGET))
        c->read[c->n_read++] = job->key; /* one of holding */
    else
        c->holding--;
}

static void blob_moved(struct penstock_session *s, struct client_job *job)
{
    struct client_cache_verbs *c = s->cache->verbs;
    if (c->window < c->window_max && ++c->credit >= 4 * c->window) {
        c->credit = 0;
        c->window++;
    }
    if (is_put(job->op)) {
        put_job(job, &c->written);
        return;
    }
    give_back(s, job);
    end_blob(s, job, PENSTOCK_ST_OK);
}

static void moved(struct rail_transfer *transfer, int code, const struct penstock_error *error)
{
    struct client_job *job = base_list_entry(transfer, struct client_job, transfer);
    struct penstock_session *s = transfer->user;
    struct client_verbs *v = s->verbs;
    struct client_op *op = job->op;
    if (v->stopping)
        return;
    if (penstock_error_class(code) == PENSTOCK_LOST_CONNECTION && v->broken.code == 0) {
        v->broken = *error;
        return; /* it ends with the session */
    }
    if (op->kind == CLIENT_OP_RAW)
        op->landed_bytes += transfer->landed_bytes;
    else if (code)
        give_back(s, job); /* a reservation stays, for the key's next PUT */
    if (code == PENSTOCK_ECANCELED)
        op->failed = op->failed ? op->failed : code;
    else if (code)
        fail_op(s, op, code, error);
    if (op->kind == CLIENT_OP_RAW || code)
        end_job(s, job);
    else
        blob_moved(s, job);
}

static int submit(struct penstock_session *s, struct client_job *job, bool write, const struct rail_range *ranges,
                  size_t n, struct penstock_error *error)
{
    job->transfer = (struct rail_transfer){ .opcode = write ? VERBS_WRITE : VERBS_READ,
                                            .ranges = ranges,
                                            .n_ranges = n,
                                            .memory = s->regions.at[job->op->region].memory,
                                            .done = moved,
                                            .user = s };
    return rail_engine_submit(s->verbs->engine, &job->transfer, error);
}

/* The slot at offset is the job's. How long the arena is, a client that joined it does not know; the peer's device
 * does. */
static int move_blob(struct penstock_session *s, struct client_job *job, uint64_t offset, struct penstock_error *error)
{
    const uint64_t blob_bytes = s->cache->arena.blob_bytes;
    if (!base_range_inside(offset, blob_bytes, PENSTOCK_ARENA_BYTES_MAX))
        return base_error_set(error, PENSTOCK_EPROTO, "says that a blob lies at %" PRIu64 ", where no arena reaches",
                              offset);
    job->range.remote_offset += offset;
    struct penstock_error why;
    int code = submit(s, job, is_put(job->op), &job->range, 1, &why);
    if (code)
        moved(&job->transfer, code, &why);
    return 0;
}

/* ---- replies ---- */

/* ST_ERR may only say that the connection has as many slots as it may have, while it has others: that job waits until
 * it has fewer. */
static void refused(struct penstock_session *s, struct client_job *job, uint8_t status)
{
    struct client_cache_verbs *c = s->cache->verbs;
    c->holding--;
    if (status != PENSTOCK_ST_ERR || job->alone) {
        end_blob(s, job, status);
        return;
    }
    c->window = c->holding > 1 ? c->holding : 1;
    c->credit = 0;
    put_job(job, &c->again);
}

int client_cache_answered(struct penstock_session *s, uint8_t op, struct client_job *job,
                          const struct penstock_paging_reply *reply, struct penstock_error *error)
{
    if (!job)
        return reply->status == PENSTOCK_ST_OK
                   ? 0
                   : base_error_set(error, PENSTOCK_EPROTO, "does not take back what it has pinned (status %u)",
                                    reply->status);
    bool slot = op == PENSTOCK_OP_ALLOC || op == PENSTOCK_OP_GET || op == PENSTOCK_OP_MGET;
    if (slot && moves_bytes(job->op)) {
        if (reply->status == PENSTOCK_ST_OK)
            return move_blob(s, job, reply->value, error);
        refused(s, job, reply->status);
        return 0;
    }
    if (op == PENSTOCK_OP_COMMIT)
        s->cache->verbs->holding--;
    end_blob(s, job, reply->status);
    return 0;
}

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
    put_job(job, &c->under_way);
    job->alone = c->holding == 0;
    c->holding += moves_bytes(job->op);
    if (job->op->blobs.action == PENSTOCK_BLOB_GET && has(s, PENSTOCK_FEATURE_MGET)) {
        batch->jobs[batch->n++] = job;
        return;
    }
    if (job->op->blobs.action == PENSTOCK_BLOB_PUT)
        op = PENSTOCK_OP_ALLOC;
    else if (job->op->blobs.action == PENSTOCK_BLOB_REMOVE)
        op = PENSTOCK_OP_REMOVE;
    else if (has(s, PENSTOCK_FEATURE_EXISTS))
        op = PENSTOCK_OP_EXISTS;
    ask_batch(s, batch); /* which comes before it */
    client_control_ask(s, op, &job, 1);
}

static bool has_window(const struct client_cache_verbs *c)
{
    return c->holding < c->window;
}

static bool same_key(const struct base_list *list, const struct client_op *op, const struct penstock_key *key)
{
    base_list_for_each (node, list) {
        const struct client_job *job = base_list_entry(node, struct client_job, node);
        bool both_look = op->blobs.action == PENSTOCK_BLOB_EXISTS && job->op->blobs.action == PENSTOCK_BLOB_EXISTS;
        if (job->key.low == key->low && job->key.high == key->high && !both_look)
            return true;
    }
    return false;
}

static bool may_begin_blob(const struct penstock_session *s, const struct client_op *op)
{
    const struct client_cache_verbs *c = s->cache->verbs;
    const struct penstock_key *key = &op->blobs.at[op->sent].key;
    bool one_by_one = !has(s, PENSTOCK_FEATURE_MGET);
    return !(one_by_one && !(base_list_empty(&c->under_way) && base_list_empty(&c->written))) &&
           (!moves_bytes(op) || has_window(c)) && !same_key(&c->under_way, op, key) && !same_key(&c->written, op, key);
}

static struct client_job *take_job(struct penstock_session *s, struct client_op *op)
{
    struct client_cache_verbs *c = s->cache->verbs;
    struct client_job *job = base_list_entry(c->free.next, struct client_job, node);
    job->op = op;
    put_job(job, &c->under_way);
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
    struct rail_range *ranges = calloc(plan->n_requests, sizeof *ranges);
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
    code = code ? code : submit(s, job, op->blobs.write, op->split.rails, op->split.n_rails, &error);
    if (code) {
        job->transfer = (struct rail_transfer){ .user = s };
        moved(&job->transfer, code, &error);
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
        fail_op(s, op, code, &error);
        end_op(s, op);
        return true;
    }
    return op->kind == CLIENT_OP_RAW ? begin_raw(s, op) : begin_blob(s, op, batch);
}

static void begin_all(struct penstock_session *s)
{
    struct client_cache_verbs *c = s->cache->verbs;
    struct batch batch = { .n = 0 };
    base_list_for_each (node, &c->written) {
        struct client_job *job = base_list_entry(node, struct client_job, node);
        if (!client_control_has_room(s))
            break;
        put_job(job, &c->under_way);
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

static int go_on(struct penstock_session *s, struct penstock_error *error)
{
    const struct client_verbs *v = s->verbs;
    const struct client_cache_verbs *c = s->cache->verbs;
    int code = c->n_expected > 0 ? client_control_hear(s, error) : 0;
    code = code ? code : client_control_take(s, error);
    for (size_t i = 0; code == 0 && i < v->devices.n && rail_engine_alive(v->engine) == 0; i++)
        if (v->slots[i].failures > 0)
            code = base_error_set(error, PENSTOCK_ECLOSED, "no rail is left: %.400s", v->slots[i].error.message);
    if (code)
        return code;
    begin_all(s);
    code = client_engine_flush(s, error);
    if (code == 0 && base_now_ns() >= client_control_due_ns(s))
        code = base_error_set(error, PENSTOCK_ETIMEOUT, "no reply, and not a byte for %.1f s",
                              (double)(base_now_ns() - s->progress_ns) / (double)BASE_SECOND_NS);
    return code;
}

void client_cache_pump(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    struct penstock_error error;
    if (!v->engine || v->broken.code || s->step != CLIENT_RAILS)
        return;
    if (go_on(s, &error))
        v->broken = error;
}

void client_cache_cancel(struct penstock_session *s, struct client_op *op)
{
    struct client_cache_verbs *c = s->cache->verbs;
    base_list_remove(&op->queue);
    op->failed = op->failed ? op->failed : PENSTOCK_ECANCELED;
    if (op->kind == CLIENT_OP_RAW && op->answered < op->sent) {
        base_list_for_each (node, &c->under_way) {
            struct client_job *job = base_list_entry(node, struct client_job, node);
            if (job->op == op) {
                rail_engine_cancel(s->verbs->engine, &job->transfer);
                return;
            }
        }
    }
    if (c)
        base_list_for_each (node, &c->again) {
            struct client_job *job = base_list_entry(node, struct client_job, node);
            if (job->op != op)
                continue;
            op->sent--;
            put_job(job, &c->free);
        }
    end_op(s, op);
}

void client_cache_over_tcp(struct penstock_session *s)
{
    base_list_for_each (node, &s->ops) {
        struct client_op *op = base_list_entry(node, struct client_op, node);
        struct penstock_error error;
        if (op->kind == CLIENT_OP_OPEN || !op->blobs.uses_region || !s->regions.at[op->region].device)
            continue;
        base_error_set(&error, PENSTOCK_EUNSUPPORTED, "DEVICE memory, and the session runs over TCP: %.300s",
                       s->why_tcp ? s->why_tcp : "");
        client_op_end(s, op, PENSTOCK_EUNSUPPORTED, &error);
    }
}
