/* What travels on a cache's TCP data plane (protocol 2.2): one request a blob, or a piece of a raw range. */
#include <inttypes.h>

#include "base/error.h"
#include "cache.h"
#include "client/tier.h"

static const uint8_t blob_ops[] = { [PENSTOCK_BLOB_PUT] = PENSTOCK_OP_PUT,
                                    [PENSTOCK_BLOB_GET] = PENSTOCK_OP_FETCH,
                                    [PENSTOCK_BLOB_EXISTS] = PENSTOCK_OP_EXISTS,
                                    [PENSTOCK_BLOB_REMOVE] = PENSTOCK_OP_REMOVE };

static void push_raw(struct client_op *op, struct client_flight *f, struct penstock_paging_request *request,
                     struct iovec *body)
{
    const struct client_request *r = &op->plan.requests[op->sent];
    request->op = op->blobs.write ? PENSTOCK_OP_WRITE : PENSTOCK_OP_READ;
    request->offset = r->offset_bytes;
    request->len_bytes = r->len_bytes;
    if (op->blobs.write)
        *body = op->plan.pieces[r->piece];
    else
        f->len_bytes = r->len_bytes;
}

static void push_blob(struct penstock_session *s, struct client_op *op, struct client_flight *f,
                      struct penstock_paging_request *request, struct iovec *body)
{
    request->op = blob_ops[op->blobs.action];
    request->key = op->blobs.at[op->sent].key;
    if (op->blobs.action == PENSTOCK_BLOB_PUT)
        *body = op->plan.pieces[op->sent];
    if (op->blobs.action != PENSTOCK_BLOB_GET)
        return;
    uint64_t wanted = op->blobs.at[op->sent].len_bytes;
    f->len_bytes = s->cache->arena.blob_bytes;
    f->waste_bytes = wanted ? f->len_bytes - wanted : 0;
}

size_t client_cache_push(struct penstock_session *s, struct client_op *op, struct client_flight *f, uint8_t *out,
                         struct iovec *body)
{
    const struct penstock_paging_framing framing = { .tcp = true, .wide = s->cache->arena.wide != 0 };
    struct penstock_paging_request request = { 0 };
    if (op->kind == CLIENT_OP_RAW)
        push_raw(op, f, &request, body);
    else
        push_blob(s, op, f, &request, body);
    return penstock_paging_request_encode(&request, &framing, out, NULL);
}

void client_cache_count(struct client_op *op, size_t blob, bool miss)
{
    op->blobs.at[blob].code = miss ? PENSTOCK_ENOTFOUND : PENSTOCK_EREFUSED;
    if (!miss && op->blobs.refused++ == 0)
        op->blobs.first_refused = blob;
    if (miss && op->blobs.missed++ == 0)
        op->blobs.first_missed = blob;
}

int client_cache_refused(const struct penstock_session *s, const struct client_flight *f, uint8_t status,
                         struct penstock_error *error)
{
    (void)s;
    struct client_op *op = f->op;
    if (op->kind == CLIENT_OP_RAW) {
        const struct client_request *r = &op->plan.requests[f->request];
        return base_error_set(error, PENSTOCK_EREFUSED,
                              "refused to %s %" PRIu32 " bytes at %" PRIu64 " of the raw arena (status %u)",
                              op->blobs.write ? "write" : "read", r->len_bytes, r->offset_bytes, status);
    }
    bool miss = status == PENSTOCK_ST_MISS &&
                (op->blobs.action == PENSTOCK_BLOB_GET || op->blobs.action == PENSTOCK_BLOB_EXISTS);
    client_cache_count(op, f->request, miss);
    return 0;
}

/* A peer may send a blob as it comes from its disk, and can only close where the rest of it is damaged (protocol 2):
 * what it says when it is asked again is its answer, but for one that closes over the same blob once more. What came of
 * a PUT or a REMOVE in flight nobody knows, and what the session owned has gone with its connection. */
bool client_cache_asks_again(struct penstock_session *s)
{
    struct client_cache *c = s->cache;
    const struct client_flight *f = client_flight_at(s, 0);
    if (c->arena.own || c->arena.blob_bytes == 0)
        return false;
    for (uint32_t i = 0; i < s->flight_n; i++) {
        const struct client_op *op = client_flight_at(s, i)->op;
        if (op && op->blobs.action != PENSTOCK_BLOB_GET && op->blobs.action != PENSTOCK_BLOB_EXISTS)
            return false;
    }
    if (f->op && f->op->id == c->cut && f->request == c->cut_blob)
        return false;
    c->cut = f->op ? f->op->id : 0;
    c->cut_blob = f->request;
    return true;
}

/* Where all are answered, what the answers come to. */
int client_cache_landed(struct penstock_session *s, struct client_op *op, struct penstock_error *error)
{
    static const char *const words[] = { [PENSTOCK_BLOB_PUT] = "put",
                                         [PENSTOCK_BLOB_GET] = "get",
                                         [PENSTOCK_BLOB_EXISTS] = "look for",
                                         [PENSTOCK_BLOB_REMOVE] = "remove" };
    if (op->kind != CLIENT_OP_BLOBS)
        return 0;
    if (op->blobs.action == PENSTOCK_BLOB_PUT)
        op->landed_bytes = (op->plan.n_requests - op->blobs.refused) * s->cache->arena.blob_bytes;
    if (op->blobs.refused > 0) {
        const struct penstock_key *key = &op->blobs.at[op->blobs.first_refused].key;
        return base_error_set(error, PENSTOCK_EREFUSED,
                              "could not %s %zu of %zu blobs, the first with key %016" PRIx64 "%016" PRIx64
                              ": every slot is in use, or its disk failed: its log says which",
                              words[op->blobs.action], op->blobs.refused, op->plan.n_requests, key->high, key->low);
    }
    if (op->blobs.missed > 0) {
        const struct penstock_key *key = &op->blobs.at[op->blobs.first_missed].key;
        return base_error_set(error, PENSTOCK_ENOTFOUND,
                              "has not got %zu of %zu blobs, the first with key %016" PRIx64 "%016" PRIx64,
                              op->blobs.missed, op->plan.n_requests, key->high, key->low);
    }
    return 0;
}

void client_cache_ended(struct penstock_session *s, struct client_op *op)
{
    if (op->kind != CLIENT_OP_BLOBS && op->kind != CLIENT_OP_RAW)
        return;
    if (op->blobs.uses_region)
        s->regions.at[op->region].users--;
    if (op->kind == CLIENT_OP_BLOBS && !s->verbs) /* over rails each is told as it ends */
        for (size_t i = 0; i < op->answered; i++)
            if (op->blobs.at[i].code == PENSTOCK_ECANCELED) /* as they began */
                op->blobs.at[i].code = 0;
}
