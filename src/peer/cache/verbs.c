#include "verbs.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "base/error.h"
#include "stream.h"

/* Replies that are not sent yet: those of the longest MGET, and then some. */
#define OUT_BYTES (2 * PENSTOCK_KEYS_MAX * PENSTOCK_PAGING_REPLY_BYTES_MAX)
#define OUT_ROOM_BYTES (PENSTOCK_KEYS_MAX * PENSTOCK_PAGING_REPLY_BYTES_MAX)

struct control {
    struct peer_connection *connection;
    struct residency_client *client;
    struct peer_cache_stream *stream;
    uint32_t slots;
    size_t n_out;
    uint8_t out[OUT_BYTES];
};

/* ---- replies ---- */

static int flush(struct control *k, struct penstock_error *error)
{
    size_t n = k->n_out;
    k->n_out = 0;
    return n == 0 ? 0
                  : net_stream_write_all(&k->connection->stream, k->out, n, k->connection->server->deadlines.message_ns,
                                         error);
}

static void reply(struct control *k, uint8_t op, enum residency_status status, uint64_t value)
{
    const struct penstock_paging_reply r = { .status = (uint8_t)status, .value = value };
    penstock_paging_reply_encode(op, &r, k->out + k->n_out);
    k->n_out += penstock_paging_reply_size(op, &r);
}

/* ---- requests ---- */

static struct residency_key key_of(const struct penstock_key *key)
{
    return (struct residency_key){ .low = key->low, .high = key->high };
}

/* One that may wait for a disk does not keep back the replies before it. */
static int get(struct control *k, const struct penstock_paging_request *r, struct penstock_error *error)
{
    uint64_t offset = 0;
    int code = flush(k, error);
    if (code)
        return code;
    enum residency_status status = residency_get(k->client, key_of(&r->key), &offset);
    reply(k, r->op, status, offset);
    return 0;
}

static int mget(struct control *k, const struct penstock_paging_request *r, struct penstock_error *error)
{
    int code = flush(k, error);
    if (code)
        return code;
    uint32_t ahead = 0; /* faults run ahead as far as there is room for them */
    const uint32_t ahead_max = k->slots < 4 ? 1 : k->slots / 4;
    for (uint32_t i = 0; i < r->n_keys; i++) {
        uint64_t offset = 0;
        while (ahead < r->n_keys && ahead <= i + ahead_max &&
               residency_prefetch(k->client, key_of(&r->keys[ahead])) != RESIDENCY_AHEAD_LATER)
            ahead++;
        enum residency_status status = residency_mget(k->client, key_of(&r->keys[i]), &offset);
        reply(k, r->op, status, offset);
    }
    return 0;
}

static void release(struct control *k, const struct penstock_paging_request *r)
{
    for (uint32_t i = 0; i < r->n_keys; i++)
        residency_mget_release(k->client, key_of(&r->keys[i]));
    reply(k, r->op, RESIDENCY_OK, 0);
}

static void answer_value(struct control *k, const struct penstock_paging_request *r)
{
    bool valid = r->op == PENSTOCK_OP_FEATURES ? r->value == 1 : r->value <= 1;
    if (valid && r->op == PENSTOCK_OP_OWN)
        residency_own(k->client, r->value == 1);
    if (valid && r->op == PENSTOCK_OP_WIDE)
        k->stream->framing.wide = r->value == 1;
    reply(k, r->op, valid ? RESIDENCY_OK : RESIDENCY_ERR,
          PENSTOCK_FEATURE_EXISTS | PENSTOCK_FEATURE_MGET | PENSTOCK_FEATURE_OWN | PENSTOCK_FEATURE_WIDE);
}

static int answer(struct control *k, const struct penstock_paging_request *r, struct penstock_error *error)
{
    struct residency_key key = key_of(&r->key);
    uint64_t offset = 0;
    switch (r->op) {
    case PENSTOCK_OP_ALLOC: {
        enum residency_status status = residency_alloc(k->client, key, &offset);
        reply(k, r->op, status, offset);
        return 0;
    }
    case PENSTOCK_OP_COMMIT:
        reply(k, r->op, residency_commit(k->client, key), 0);
        return 0;
    case PENSTOCK_OP_GET:
        return get(k, r, error);
    case PENSTOCK_OP_REMOVE:
        reply(k, r->op, residency_remove(k->client, key), 0);
        return 0;
    case PENSTOCK_OP_EXISTS:
        reply(k, r->op, residency_exists(k->client, key), 0);
        return 0;
    case PENSTOCK_OP_MGET:
        return mget(k, r, error);
    case PENSTOCK_OP_RELEASE:
        release(k, r);
        return 0;
    case PENSTOCK_OP_OWN:
    case PENSTOCK_OP_WIDE:
    case PENSTOCK_OP_FEATURES:
        answer_value(k, r);
        return 0;
    default:
        residency_let_go(k->client);
        reply(k, r->op, RESIDENCY_ERR, 0);
        return 0;
    }
}

/* ---- the connection ---- */

static enum peer_end broken(struct control *k, const struct penstock_error *error)
{
    return peer_connection_ended(k->connection, "while it is answered", true, error);
}

/* All requests that have come whole. True: go on. */
static bool answer_all(struct control *k, enum peer_end *end)
{
    struct penstock_error error;
    struct penstock_wire_fault fault;
    struct penstock_paging_request request;
    enum penstock_decode d;
    while ((d = peer_cache_stream_next(k->stream, &request, &fault)) == PENSTOCK_DECODE_OK) {
        int code = k->n_out > sizeof k->out - OUT_ROOM_BYTES ? flush(k, &error) : 0;
        bool bye = request.op == PENSTOCK_OP_BYE;
        if (code == 0 && !bye)
            code = answer(k, &request, &error);
        if (code == 0 && bye)
            code = flush(k, &error);
        if (code || bye) {
            *end = code ? broken(k, &error) : PEER_END_LINGER;
            return false;
        }
    }
    if (flush(k, &error)) {
        *end = broken(k, &error);
        return false;
    }
    if (d == PENSTOCK_DECODE_MALFORMED)
        *end = peer_cache_stream_refuse(k->stream, &fault);
    return d == PENSTOCK_DECODE_MORE;
}

static enum peer_end serve_paging(struct peer_connection *c, struct residency_client *client, uint64_t blob_bytes)
{
    struct control *k = malloc(sizeof *k);
    struct peer_cache_stream *stream = peer_cache_stream_new(c, false, 0);
    enum peer_end end = PEER_END_LINGER;
    if (k && stream) {
        k->connection = c;
        k->client = client;
        k->stream = stream;
        k->slots = (uint32_t)(residency_memory(client).len_bytes / blob_bytes); /* 2^30 at most */
        k->n_out = 0;
        /* Between its requests it may be reading what it has pinned and writing what it has reserved. */
        while (answer_all(k, &end) &&
               (atomic_store(&c->holding, residency_client_holds(client)), peer_cache_stream_wait(stream, &end)))
            ;
    } else {
        peer_connection_complain(c, "closed: no memory for its requests");
    }
    free(stream);
    free(k);
    return end;
}

/* Nothing may be asked here: what comes is discarded (protocol 1.3). */
static enum peer_end serve_raw(struct peer_connection *c)
{
    uint8_t nothing[512];
    const struct iovec into = { .iov_base = nothing, .iov_len = sizeof nothing };
    atomic_store(&c->holding, true);
    while (c->stream.ops->readv(&c->stream, &into, 1) > 0)
        ;
    return PEER_END_CLOSE;
}

enum peer_end peer_cache_verbs_serve(struct peer_connection *c, struct peer_cache_rails *rails, uint64_t blob_bytes)
{
    enum peer_end end = blob_bytes > 0 ? serve_paging(c, rails->client, blob_bytes) : serve_raw(c);
    /* A client whose rails die must know by then that it is the peer that has gone. */
    c->stream.ops->shutdown(&c->stream, SHUT_WR);
    rail_set_fini(&rails->set);
    atomic_store(&c->holding, false);
    return end;
}
