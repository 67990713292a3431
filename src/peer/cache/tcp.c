/* Requests are parsed as far as they have come, so that the disk reads ahead of what is sent; they are carried out one
 * after the other. Bodies are received into their slots, and sent from them: what was queued to be sent holds its slots
 * until it has gone. */
#include "tcp.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "peer/transfer.h"
#include "stream.h"

/* What is queued to be sent, at most: slots that are held meanwhile. A reply of more goes alone. */
#define HELD_MAX 64u
#define HELD_BYTES (256u << 10)

/* A parsed request. */
struct request {
    uint8_t op;
    bool last;     /* nothing is parsed behind it: the connection ends with it */
    bool may_wait; /* FETCH: for a disk, as it was when it was looked at */
    uint32_t len_bytes;
    struct residency_key key;
    uint64_t value;     /* and READ's and WRITE's offset */
    uint64_t body_left; /* of a body, what has not come yet */
    const uint8_t *body;
    size_t body_here; /* what has, in the stream's buffer */
};

struct plane {
    struct peer_connection *connection;
    struct residency_client *client;
    struct residency_memory memory;
    uint64_t blob_bytes;
    struct peer_cache_stream *stream;
    struct penstock_wire_fault fault; /* why the last request is refused */
    uint8_t features[PENSTOCK_PAGING_REPLY_BYTES_MAX];

    unsigned first, n;         /* in the queue */
    unsigned ahead, ahead_max; /* so many of them have been looked at: their faults are started */
    unsigned changing, bodies; /* of them, PUTs and REMOVEs, and those with a part of a body in the buffer */
    bool open;                 /* the last one's body is not all here: what follows it is not parsed */
    unsigned n_held, held_max;
    uint64_t held_bytes;

    struct request queue[PENSTOCK_UNANSWERED_MAX];
    struct residency_copy held[HELD_MAX];
    struct peer_transfer transfer;
};

/* An op that the codec does not know, for the queue: protocol 2.2 has no such op. */
#define OP_REFUSED 0xFF

/* ---- parsing ---- */

static struct request *queued(struct plane *p, unsigned i)
{
    return &p->queue[(p->first + i) % PENSTOCK_UNANSWERED_MAX];
}

/* Whether one of the first n in the queue puts or removes key. */
static bool changes(struct plane *p, unsigned n, const struct residency_key *key)
{
    for (unsigned i = 0; i < n && p->changing > 0; i++) {
        const struct request *r = queued(p, i);
        if ((r->op == PENSTOCK_OP_PUT || r->op == PENSTOCK_OP_REMOVE) && r->key.low == key->low &&
            r->key.high == key->high)
            return true;
    }
    return false;
}

/* Starts the faults of FETCHes in the order that they will be answered in, as far as there is room for them: too far
 * ahead, and what comes in would push out what is to be sent next. One with nothing behind it is left to this thread,
 * which would only wait. */
static void look_ahead(struct plane *p)
{
    for (; p->ahead < p->n && p->ahead < p->ahead_max; p->ahead++) {
        struct request *r = queued(p, p->ahead);
        if (r->op != PENSTOCK_OP_FETCH || p->blob_bytes == 0)
            continue;
        enum residency_ahead ahead = changes(p, p->ahead, &r->key) ? RESIDENCY_AHEAD_COMING
                                     : p->n == 1                   ? residency_look(p->client, r->key)
                                                                   : residency_prefetch(p->client, r->key);
        r->may_wait = ahead != RESIDENCY_AHEAD_NOW;
        if (ahead == RESIDENCY_AHEAD_LATER)
            return;
    }
}

/* Splits what has come of a body from what has not. */
static void find_body(struct plane *p, struct request *r, uint64_t len)
{
    struct peer_cache_stream *s = p->stream;
    r->body = s->in + s->start;
    r->body_here = base_min_u64(len, s->end - s->start);
    r->body_left = len - r->body_here;
    s->start += r->body_here;
    p->bodies += r->body_here > 0;
    p->open = r->body_left > 0;
}

static void enqueue(struct plane *p, const struct penstock_paging_request *from)
{
    struct request r = { .op = from->op,
                         .key = { .low = from->key.low, .high = from->key.high },
                         .len_bytes = from->len_bytes,
                         .value = from->op == PENSTOCK_OP_READ || from->op == PENSTOCK_OP_WRITE ? from->offset
                                                                                                : from->value };
    switch (from->op) {
    case PENSTOCK_OP_PUT:
        find_body(p, &r, p->blob_bytes);
        break;
    case PENSTOCK_OP_WRITE:
        find_body(p, &r, from->len_bytes);
        break;
    case PENSTOCK_OP_WIDE:
        /* What comes behind it is framed so already. */
        if (p->blob_bytes > 0 && from->value <= 1)
            p->stream->framing.wide = from->value == 1;
        break;
    case PENSTOCK_OP_BYE:
    case OP_REFUSED:
        r.last = true;
        break;
    default:
        break;
    }
    p->changing += r.op == PENSTOCK_OP_PUT || r.op == PENSTOCK_OP_REMOVE;
    *queued(p, p->n++) = r;
}

static bool ends(struct plane *p)
{
    return p->n > 0 && queued(p, p->n - 1)->last;
}

static void parse_some(struct plane *p)
{
    while (p->n < PENSTOCK_UNANSWERED_MAX && !p->open && !ends(p)) {
        struct penstock_paging_request request;
        enum penstock_decode d = peer_cache_stream_next(p->stream, &request, &p->fault);
        if (d == PENSTOCK_DECODE_MORE)
            return;
        if (d == PENSTOCK_DECODE_MALFORMED)
            request = (struct penstock_paging_request){ .op = OP_REFUSED };
        enqueue(p, &request);
    }
}

static void parse(struct plane *p)
{
    parse_some(p);
    look_ahead(p);
}

/* ---- replying ---- */

static int flush(struct plane *p, struct penstock_error *error)
{
    int code = peer_transfer_flush(&p->transfer, false, error);
    for (unsigned i = 0; i < p->n_held; i++)
        residency_fetch_end(p->client, &p->held[i]);
    p->n_held = 0;
    p->held_bytes = 0;
    return code;
}

/* Before something that may take long: replies are not kept back for it, and what has been asked meanwhile is begun. */
static int catch_up(struct plane *p, struct penstock_error *error)
{
    int code = flush(p, error);
    if (code == 0 && !p->open && !ends(p) && p->n < PENSTOCK_UNANSWERED_MAX) {
        peer_cache_stream_look(p->stream, p->bodies == 0);
        parse(p);
    }
    return code;
}

static int reply_status(struct plane *p, enum residency_status status, struct penstock_error *error)
{
    static const uint8_t bytes[] = { PENSTOCK_ST_OK, PENSTOCK_ST_MISS, PENSTOCK_ST_ERR };
    return peer_transfer_bytes(&p->transfer, &bytes[status], 1, error);
}

static int reply_rest(struct plane *p, const uint8_t *bytes, uint64_t len, struct penstock_error *error)
{
    int code = peer_transfer_bytes(&p->transfer, bytes, len, error);
    p->held_bytes += len;
    if (code == 0 && (p->held_bytes >= HELD_BYTES || p->n_held >= p->held_max))
        code = catch_up(p, error);
    return code;
}

static int reply_bytes(struct plane *p, const uint8_t *bytes, uint64_t len, struct penstock_error *error)
{
    int code = reply_status(p, RESIDENCY_OK, error);
    return code ? code : reply_rest(p, bytes, len, error);
}

/* ---- paging ---- */

/* A large blob whose first pieces are here and known to be right, while the disk still reads the others. Where one of
 * those cannot be had its length has been promised (protocol 2): the connection ends, and whoever asks again is told.
 */
static int reply_as_it_comes(struct plane *p, struct residency_copy *copy, struct penstock_error *error)
{
    uint64_t sent = 0;
    int code = reply_status(p, RESIDENCY_OK, error);
    while (code == 0 && copy->here_bytes < p->blob_bytes) {
        code = peer_transfer_bytes(&p->transfer, copy->blob + sent, copy->here_bytes - sent, error);
        code = code ? code : peer_transfer_flush(&p->transfer, false, error);
        sent = copy->here_bytes;
        enum residency_status status = code == 0 ? residency_fetch_more(p->client, copy) : RESIDENCY_OK;
        if (status != RESIDENCY_OK)
            code = base_error_set(error, PENSTOCK_ECORRUPT, "the rest of a blob that was being sent %s",
                                  status == RESIDENCY_MISS ? "is damaged on the disk" : "could not be read");
    }
    return code ? code : reply_rest(p, copy->blob + sent, p->blob_bytes - sent, error);
}

static int fetch(struct plane *p, const struct request *r, struct penstock_error *error)
{
    struct residency_copy copy;
    /* What was on disk when it was asked for may be here by now: then several go at once. */
    int code = r->may_wait && residency_look(p->client, r->key) != RESIDENCY_AHEAD_NOW ? catch_up(p, error) : 0;
    if (code)
        return code;
    /* A connection with changes behind this is not to end for a damaged blob: nobody would know what came of them. */
    bool partly = p->changing == 0;
    enum residency_status status = residency_fetch_begin(p->client, r->key, partly, &copy);
    if (status == RESIDENCY_ERR && p->n_held > 0) { /* perhaps for want of a slot that we hold ourselves */
        code = flush(p, error);
        if (code)
            return code;
        status = residency_fetch_begin(p->client, r->key, partly, &copy);
    }
    if (status != RESIDENCY_OK)
        return reply_status(p, status, error);
    p->held[p->n_held++] = copy;
    if (copy.here_bytes < p->blob_bytes)
        return reply_as_it_comes(p, &p->held[p->n_held - 1], error);
    return reply_bytes(p, copy.blob, p->blob_bytes, error);
}

/* All of a body, to NULL: nowhere. */
static int receive(struct plane *p, const struct request *r, uint8_t *to, struct penstock_error *error)
{
    if (to && r->body_here > 0)
        memcpy(to, r->body, r->body_here);
    if (r->body_left == 0)
        return 0;
    int code = flush(p, error);
    return code ? code : peer_cache_stream_body(p->stream, to ? to + r->body_here : NULL, r->body_left, error);
}

static int put(struct plane *p, const struct request *r, struct penstock_error *error)
{
    struct residency_copy copy = { .blob = NULL };
    enum residency_status status = residency_put_begin(p->client, r->key, &copy);
    int code = 0;
    if (status == RESIDENCY_ERR && p->n_held > 0) {
        code = flush(p, error);
        if (code)
            return code;
        status = residency_put_begin(p->client, r->key, &copy);
    }
    code = receive(p, r, copy.blob, error);
    if (code) {
        residency_put_abandon(p->client, &copy);
        return code;
    }
    if (status == RESIDENCY_OK)
        status = residency_put_commit(p->client, &copy);
    return reply_status(p, status, error);
}

static int answer_paging(struct plane *p, const struct request *r, struct penstock_error *error)
{
    switch (r->op) {
    case PENSTOCK_OP_PUT:
        return put(p, r, error);
    case PENSTOCK_OP_FETCH:
        return fetch(p, r, error);
    case PENSTOCK_OP_EXISTS:
        return reply_status(p, residency_exists(p->client, r->key), error);
    case PENSTOCK_OP_REMOVE:
        return reply_status(p, residency_remove(p->client, r->key), error);
    case PENSTOCK_OP_OWN:
        if (r->value <= 1)
            residency_own(p->client, r->value == 1);
        return reply_status(p, r->value <= 1 ? RESIDENCY_OK : RESIDENCY_ERR, error);
    case PENSTOCK_OP_WIDE:
        return reply_status(p, r->value <= 1 ? RESIDENCY_OK : RESIDENCY_ERR, error);
    case PENSTOCK_OP_WRITE: {
        int code = receive(p, r, NULL, error);
        return code ? code : reply_status(p, RESIDENCY_ERR, error);
    }
    default: /* slots are handed out on verbs alone; READ is of the other mode */
        return reply_status(p, RESIDENCY_ERR, error);
    }
}

/* ---- raw ---- */

static bool inside_arena(const struct plane *p, const struct request *r)
{
    return r->len_bytes > 0 && r->len_bytes <= PENSTOCK_RANGE_BYTES_MAX &&
           base_range_inside(r->value, r->len_bytes, p->memory.len_bytes);
}

static int write_range(struct plane *p, const struct request *r, struct penstock_error *error)
{
    bool inside = inside_arena(p, r);
    /* What is queued to be sent is what it was when it was asked for. */
    int code = p->held_bytes > 0 ? flush(p, error) : 0;
    if (code == 0)
        code = receive(p, r, inside ? (uint8_t *)p->memory.base + r->value : NULL, error);
    return code ? code : reply_status(p, inside ? RESIDENCY_OK : RESIDENCY_ERR, error);
}

static int answer_raw(struct plane *p, const struct request *r, struct penstock_error *error)
{
    switch (r->op) {
    case PENSTOCK_OP_WRITE:
        return write_range(p, r, error);
    case PENSTOCK_OP_READ:
        if (inside_arena(p, r))
            return reply_bytes(p, (const uint8_t *)p->memory.base + r->value, r->len_bytes, error);
        return reply_status(p, RESIDENCY_ERR, error);
    default: /* of the other mode; a PUT's body has no byte here */
        return reply_status(p, RESIDENCY_ERR, error);
    }
}

/* ---- the connection ---- */

static int answer(struct plane *p, const struct request *r, struct penstock_error *error)
{
    if (r->op == PENSTOCK_OP_FEATURES)
        return r->value == 1 ? peer_transfer_bytes(&p->transfer, p->features, sizeof p->features, error)
                             : reply_status(p, RESIDENCY_ERR, error);
    return p->blob_bytes > 0 ? answer_paging(p, r, error) : answer_raw(p, r, error);
}

/* The first in the queue stays in it until it is answered: what is parsed meanwhile goes behind it. */
static int answer_first(struct plane *p, struct penstock_error *error)
{
    const struct request *r = queued(p, 0);
    int code = answer(p, r, error);
    p->changing -= r->op == PENSTOCK_OP_PUT || r->op == PENSTOCK_OP_REMOVE;
    p->bodies -= r->body_here > 0;
    p->open = p->open && r->body_left == 0;
    p->first = (p->first + 1) % PENSTOCK_UNANSWERED_MAX;
    p->n--;
    p->ahead -= p->ahead > 0;
    return code;
}

static enum peer_end broken(struct plane *p, const struct penstock_error *error)
{
    peer_connection_complain(p->connection, "closed inside a cache request: %s", error->message);
    /* Of a blob that was broken off the client is to get what was sent: it then knows which one it was. */
    return error->code == PENSTOCK_ETIMEOUT || error->code == PENSTOCK_ECORRUPT ? PEER_END_LINGER : PEER_END_CLOSE;
}

static enum peer_end serve(struct plane *p)
{
    struct penstock_error error;
    enum peer_end end;
    for (;;) {
        parse(p);
        while (p->n > 0) {
            const struct request *r = queued(p, 0);
            if (r->last) {
                if (flush(p, &error))
                    return broken(p, &error);
                return r->op == OP_REFUSED ? peer_cache_stream_refuse(p->stream, &p->fault) : PEER_END_LINGER;
            }
            if (answer_first(p, &error))
                return broken(p, &error);
            parse(p);
        }
        if (flush(p, &error))
            return broken(p, &error);
        if (!peer_cache_stream_wait(p->stream, &end))
            return end;
    }
}

static void describe_features(struct plane *p)
{
    const struct penstock_paging_reply reply = {
        .status = PENSTOCK_ST_OK,
        .value = p->blob_bytes > 0 ? PENSTOCK_FEATURE_EXISTS | PENSTOCK_FEATURE_OWN | PENSTOCK_FEATURE_WIDE : 0,
    };
    penstock_paging_reply_encode(PENSTOCK_OP_FEATURES, &reply, p->features);
}

enum peer_end peer_cache_tcp_serve(struct peer_connection *c, struct residency_client *client, uint64_t blob_bytes)
{
    struct plane *p = malloc(sizeof *p);
    struct peer_cache_stream *stream = peer_cache_stream_new(c, true, blob_bytes > 0 ? blob_bytes : UINT64_MAX);
    enum peer_end end = PEER_END_LINGER;
    if (p && stream) {
        memset(p, 0, offsetof(struct plane, queue)); /* not the arrays: the same as with the stream's */
        p->connection = c;
        p->client = client;
        p->memory = residency_memory(client);
        p->blob_bytes = blob_bytes;
        p->stream = stream;
        uint64_t slots = blob_bytes > 0 ? p->memory.len_bytes / blob_bytes : 0;
        p->held_max = (unsigned)base_max_u64(base_min_u64(slots / 4, HELD_MAX), 1);
        p->ahead_max = (unsigned)base_max_u64(base_min_u64(slots / 2, PENSTOCK_UNANSWERED_MAX), 1);
        peer_transfer_init(&p->transfer, &c->stream);
        describe_features(p);
        end = serve(p);
        for (unsigned i = 0; i < p->n_held; i++)
            residency_fetch_end(client, &p->held[i]);
    } else {
        peer_connection_complain(c, "closed: no memory for its requests");
    }
    free(stream);
    free(p);
    return end;
}
