/* A cache session over RDMA. Blobs' bytes go over rails; what is asked about them goes over the stream that the rails
 * hang on, pipelined (protocol 1.6, 2.3). begin.c has what begins next, verbs.c what is on its way,
 * control.c the stream.
 *
 * A job is one blob of an operation, or all of a raw one:
 *
 *     PUT     ALLOC, WRITE, COMMIT
 *     GET     MGET, READ, RELEASE; GET, READ where the peer has no MGET
 *     EXISTS  EXISTS; GET where the peer has none
 *     REMOVE  REMOVE
 *     raw     READ or WRITE
 *
 * Jobs begin in the order submitted, and no two of one key are under way at once unless both only look: so requests on
 * a key take effect in that order. A peer without MGET gets one job at a time, since its pin of a GET ends with
 * whatever comes next. What was begun of an operation that is canceled goes on to its end: a slot that was reserved is
 * committed, wholly written, and none is left behind. */
#ifndef PENSTOCK_CLIENT_CACHE_VERBS_H
#define PENSTOCK_CLIENT_CACHE_VERBS_H

#include "cache.h"
#include "client/session.h"
#include "rail/chunks.h"

#define CLIENT_JOBS_MAX CLIENT_FLIGHTS_MAX /* a peer holds no more requests unanswered */
#define CLIENT_HOLD_MAX 64u                /* jobs that have a slot of the arena: pinned or reserved */

struct client_job {
    struct base_list node; /* in one of the lists below */
    struct client_op *op;
    size_t blob; /* of op */
    struct penstock_key key;
    bool alone;          /* when it was asked for, nothing else had a slot */
    unsigned pins;       /* GET: of others that have read by them, to be released with its own */
    uint64_t begin, end; /* raw: what it touches of the arena lies between them */
    struct rail_range range;
    struct rail_transfer transfer;
};

/* A reply to come. */
struct client_expected {
    uint8_t op;
    struct client_job *job; /* NULL: a RELEASE's */
};

struct client_cache_verbs {
    struct base_list free, under_way;
    struct base_list again;                    /* refused while others of ours had slots: to be asked for once more */
    struct base_list written;                  /* PUT: to be committed */
    struct penstock_key read[CLIENT_HOLD_MAX]; /* GET: to be released */
    size_t n_read;

    /* Slots pinned or reserved, or asked for: at most window, which shrinks where the peer gives no more, and grows
     * back to window_max. */
    unsigned holding, window, window_max, credit;

    struct client_expected expected[CLIENT_JOBS_MAX]; /* a ring */
    uint32_t expected_first, n_expected;
    uint8_t in[4096];
    size_t in_bytes;

    struct rail_chunks *chunks; /* NULL: bytes go as the rail engine has it */
    struct client_job jobs[CLIENT_JOBS_MAX];
};

static inline void client_job_put(struct client_job *job, struct base_list *list)
{
    base_list_remove(&job->node);
    base_list_append(list, &job->node);
}

static inline bool client_job_same_key(const struct client_job *job, const struct penstock_key *key)
{
    return job->key.low == key->low && job->key.high == key->high;
}

static inline bool client_job_has(const struct penstock_session *s, uint64_t feature)
{
    return s->cache->features & feature;
}

static inline bool client_job_is_put(const struct client_op *op)
{
    return op->kind == CLIENT_OP_BLOBS && op->blobs.action == PENSTOCK_BLOB_PUT;
}

static inline bool client_job_moves(const struct client_op *op)
{
    return op->blobs.action == PENSTOCK_BLOB_PUT || op->blobs.action == PENSTOCK_BLOB_GET;
}

/* ---- verbs.c ---- */

PENSTOCK_CHECKED int client_cache_verbs_new(struct penstock_session *s, struct penstock_error *error);
void client_cache_verbs_free(struct client_cache_verbs *verbs); /* NULL is fine */
/* Of an operation: it goes no further. */
void client_job_fail_op(struct penstock_session *s, struct client_op *op, int code, const struct penstock_error *error);
/* It ends, where nothing of it is under way, and nothing is to come. */
void client_job_end_op(struct penstock_session *s, struct client_op *op);
/* Gives its bytes to the rail engine, and what comes of them. */
PENSTOCK_CHECKED int client_job_submit(struct penstock_session *s, struct client_job *job, bool write,
                                       const struct rail_range *ranges, size_t n, struct penstock_error *error);
void client_job_moved(struct rail_transfer *transfer, int code, const struct penstock_error *error);
/* A reply to op is there. An error is the session's end. */
PENSTOCK_CHECKED int client_cache_answered(struct penstock_session *s, uint8_t op, struct client_job *job,
                                           const struct penstock_paging_reply *reply, struct penstock_error *error);

/* Hooks. */
void client_cache_pump(struct penstock_session *s);
void client_cache_cancel(struct penstock_session *s, struct client_op *op);
void client_cache_over_tcp(struct penstock_session *s);

/* ---- begin.c ---- */

/* All that there is room for. */
void client_jobs_begin(struct penstock_session *s);

/* ---- control.c ---- */

/* Whether one more request, of however many keys there may be, can be sent. */
bool client_control_has_room(const struct penstock_session *s);
/* Encodes a request about jobs: more than one only for MGET. */
void client_control_ask(struct penstock_session *s, uint8_t op, struct client_job *const *jobs, size_t n);
/* What was read is given back. */
void client_control_release(struct penstock_session *s);
/* Hands out the replies that are there. An error is the session's end. */
PENSTOCK_CHECKED int client_control_take(struct penstock_session *s, struct penstock_error *error);

/* Hooks. */
int client_control_hear(struct penstock_session *s, struct penstock_error *error);
int64_t client_control_due_ns(const struct penstock_session *s);

#endif
