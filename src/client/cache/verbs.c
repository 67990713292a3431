/* Blobs on their way over rails, and raw ranges. */
#include "verbs.h"

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
    const struct client_cache *cache = s->cache;
    struct client_cache_verbs *c = calloc(1, sizeof *c);
    if (c && cache->chunk_bytes)
        c->chunks = rail_chunks_new(s->verbs->engine, s->verbs->devices.n, cache->chunk_bytes, cache->depth);
    if (!c || (cache->chunk_bytes && !c->chunks)) {
        free(c);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for blobs on their way");
    }
    base_list_init(&c->free);
    base_list_init(&c->under_way);
    base_list_init(&c->again);
    base_list_init(&c->written);
    for (size_t i = 0; i < CLIENT_JOBS_MAX; i++)
        base_list_append(&c->free, &c->jobs[i].node);
    c->window = c->window_max = window_of(&s->cache->arena);
    client_cache_verbs_free(s->cache->verbs);
    s->cache->verbs = c;
    return 0;
}

void client_cache_verbs_free(struct client_cache_verbs *verbs)
{
    if (verbs)
        rail_chunks_free(verbs->chunks);
    free(verbs);
}

/* ---- ends ---- */

void client_job_end_op(struct penstock_session *s, struct client_op *op)
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

void client_job_fail_op(struct penstock_session *s, struct client_op *op, int code, const struct penstock_error *error)
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

/* Its operation may end by it. */
static void end_job(struct penstock_session *s, struct client_job *job)
{
    struct client_op *op = job->op;
    client_job_put(job, &s->cache->verbs->free);
    job->op = NULL;
    op->answered++;
    client_job_end_op(s, op);
}

static void end_blob(struct penstock_session *s, struct client_job *job, uint8_t status)
{
    struct client_op *op = job->op;
    if (status == PENSTOCK_ST_OK) {
        op->blobs.at[job->blob].code = 0;
        op->landed_bytes += client_job_moves(op) ? job->range.len_bytes : 0;
    } else {
        client_cache_count(op, job->blob,
                           status == PENSTOCK_ST_MISS &&
                               (op->blobs.action == PENSTOCK_BLOB_GET || op->blobs.action == PENSTOCK_BLOB_EXISTS));
    }
    end_job(s, job);
}

/* ---- bytes ---- */

/* Another GET of the key; NULL: none is under way. */
static struct client_job *reader_beside(const struct penstock_session *s, const struct client_job *job)
{
    base_list_for_each (node, &s->cache->verbs->under_way) {
        struct client_job *other = base_list_entry(node, struct client_job, node);
        if (other != job && other->op->blobs.action == PENSTOCK_BLOB_GET && client_job_same_key(other, &job->key))
            return other;
    }
    return NULL;
}

/* Slots are the peer's again: pins by RELEASE, which is due, or by whatever is asked for next. A RELEASE drops the
 * oldest pin of its key, which may be another reader's: so the last one gives back those of all. */
static void give_back(struct penstock_session *s, struct client_job *job, unsigned slots)
{
    struct client_cache_verbs *c = s->cache->verbs;
    if (client_job_is_put(job->op) || !client_job_has(s, PENSTOCK_FEATURE_MGET)) {
        c->holding -= slots;
        return;
    }
    struct client_job *other = reader_beside(s, job);
    slots += job->pins;
    job->pins = 0;
    if (other)
        other->pins += slots;
    for (; !other && slots > 0; slots--)
        c->read[c->n_read++] = job->key; /* they are of holding */
}

static void blob_moved(struct penstock_session *s, struct client_job *job)
{
    struct client_cache_verbs *c = s->cache->verbs;
    if (c->window < c->window_max && ++c->credit >= 4 * c->window) {
        c->credit = 0;
        c->window++;
    }
    if (client_job_is_put(job->op)) {
        client_job_put(job, &c->written);
        return;
    }
    give_back(s, job, 1);
    end_blob(s, job, PENSTOCK_ST_OK);
}

void client_job_moved(struct rail_transfer *transfer, int code, const struct penstock_error *error)
{
    struct client_job *job = base_list_entry(transfer, struct client_job, transfer);
    struct penstock_session *s = transfer->user;
    struct client_verbs *v = s->verbs;
    struct client_op *op = job->op;
    if (v->stopping)
        return;
    if (penstock_error_class(code) == PENSTOCK_LOST_CONNECTION) { /* it ends with the session */
        v->broken = v->broken.code ? v->broken : *error;
        return;
    }
    if (op->kind == CLIENT_OP_RAW)
        op->landed_bytes += transfer->landed_bytes;
    else if (code)
        give_back(s, job, 1); /* a reservation stays, for the key's next PUT */
    if (code == PENSTOCK_ECANCELED)
        op->failed = op->failed ? op->failed : code;
    else if (code)
        client_job_fail_op(s, op, code, error);
    if (op->kind == CLIENT_OP_RAW || code)
        end_job(s, job);
    else
        blob_moved(s, job);
}

int client_job_submit(struct penstock_session *s, struct client_job *job, bool write, const struct rail_range *ranges,
                      size_t n, struct penstock_error *error)
{
    job->transfer = (struct rail_transfer){ .opcode = write ? VERBS_WRITE : VERBS_READ,
                                            .ranges = ranges,
                                            .n_ranges = n,
                                            .memory = s->regions.at[job->op->region].memory,
                                            .done = client_job_moved,
                                            .user = s };
    return s->cache->verbs->chunks ? rail_chunks_submit(s->cache->verbs->chunks, &job->transfer, error)
                                   : rail_engine_submit(s->verbs->engine, &job->transfer, error);
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
    int code = client_job_submit(s, job, client_job_is_put(job->op), &job->range, 1, &why);
    if (code)
        client_job_moved(&job->transfer, code, &why);
    return 0;
}

/* ---- replies ---- */

/* ST_ERR may only say that the connection has as many slots as it may have, while it has others: that job waits until
 * it has fewer. */
static void refused(struct penstock_session *s, struct client_job *job, uint8_t status)
{
    struct client_cache_verbs *c = s->cache->verbs;
    c->holding--;
    give_back(s, job, 0);
    if (status != PENSTOCK_ST_ERR || job->alone) {
        end_blob(s, job, status);
        return;
    }
    c->window = c->holding > 1 ? c->holding : 1;
    c->credit = 0;
    client_job_put(job, &c->again);
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
    if (slot && client_job_moves(job->op)) {
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

/* ---- all of it ---- */

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
    client_jobs_begin(s);
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
                if (c->chunks)
                    rail_chunks_cancel(c->chunks, &job->transfer);
                else
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
            client_job_put(job, &c->free);
        }
    client_job_end_op(s, op);
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
