#include "ranges.h"

#include <string.h>
#include <sys/stat.h>

#include <penstock/wire.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

static const uint8_t status_err = PENSTOCK_STATUS_ERR;

/* A file's length now, looked at once for a run of requests to the same file. */
struct look {
    const struct peer_file *file;
    uint64_t len_bytes;
};

/* Whether the range still is in the file. What a file cut short has lost is refused while that can be said; and the
 * rest of its last page must not go out, which a mapping would give as zeros. */
static bool still_there(struct look *look, const struct peer_range *range)
{
    const struct peer_file *file = range->file;
    if (look->file != file) {
        struct stat st;
        *look = (struct look){ .file = file, .len_bytes = fstat(file->fd, &st) == 0 ? (uint64_t)st.st_size : 0 };
    }
    return base_range_inside(range->offset, range->len, look->len_bytes);
}

/* STATUS_ERR for what was promised by the manifest and is no longer there. */
static int refuse_lost(struct peer_transfer *transfer, struct peer_connection *c, const struct peer_file *file,
                       struct penstock_error *error)
{
    peer_connection_complain(c, "refused a range: %s: %s was cut short while it was served", c->served->id, file->name);
    return peer_transfer_bytes(transfer, &status_err, 1, error);
}

/* Below 0: of no more use; 1: the client wants no more. */
static int answer(struct peer_transfer *transfer, struct peer_connection *c, const struct peer_requests *requests,
                  const uint8_t *raw, size_t n, struct penstock_error *error)
{
    struct look look = { 0 };
    transfer->copy = requests->copy_warm && atomic_load(&c->served->warmed_bytes) == c->served->bytes;
    for (size_t i = 0; i < n; i++, raw += requests->request_bytes) {
        struct peer_range range;
        bool more = i + 1 < n;
        int code = 0;
        switch (requests->parse(c->served, raw, &range)) {
        case PEER_REQUEST_RANGE:
            code = still_there(&look, &range)
                       ? peer_transfer_range(transfer, range.file, range.offset, range.len, more, error)
                       : refuse_lost(transfer, c, range.file, error);
            break;
        case PEER_REQUEST_OTHER:
            code = requests->other(transfer, c, raw, more, error);
            break;
        case PEER_REQUEST_END:
            return (code = peer_transfer_flush(transfer, false, error)) ? code : 1;
        case PEER_REQUEST_REFUSED:
        default:
            code = peer_transfer_bytes(transfer, &status_err, 1, error);
            break;
        }
        if (code)
            return code;
    }
    return peer_transfer_flush(transfer, false, error);
}

/* The first file of n requests that is shorter now than it was staged: a writev of many ranges does not say which one
 * it could not read. */
static const struct peer_file *cut_short(const struct peer_served *served, const struct peer_requests *requests,
                                         const uint8_t *raw, size_t n)
{
    for (size_t i = 0; i < n; i++, raw += requests->request_bytes) {
        struct peer_range range;
        struct stat st;
        if (requests->parse(served, raw, &range) == PEER_REQUEST_RANGE && fstat(range.file->fd, &st) == 0 &&
            (uint64_t)st.st_size < range.file->len_bytes)
            return range.file;
    }
    return NULL;
}

/* file: one that was found cut short; NULL: none was. */
static enum peer_end broken(struct peer_connection *c, const struct peer_file *file, const struct penstock_error *error)
{
    if (error->code == PENSTOCK_ECLOSED)
        base_log_debug("client %s: %s", c->client, error->message);
    else if (error->code == PENSTOCK_ECORRUPT)
        base_log_error("client %s: closed, it could not be given what it was promised: %s: %s%s", c->client,
                       c->served->id, file ? file->name : error->message,
                       file ? " was cut short while it was served" : "");
    else
        peer_connection_complain(c, "dropped: %s", error->message);
    return PEER_END_CLOSE;
}

enum peer_end peer_requests_serve(struct peer_connection *c, const struct peer_requests *requests)
{
    uint8_t raw[PENSTOCK_UNANSWERED_MAX * PEER_REQUEST_BYTES_MAX];
    const size_t size = requests->request_bytes, room = PENSTOCK_UNANSWERED_MAX * size;
    size_t have = 0;
    struct peer_transfer transfer;
    struct penstock_error error;

    peer_transfer_init(&transfer, &c->stream);
    for (;;) {
        size_t got;
        if (peer_connection_read_some(c, raw + have, room - have, have > 0, &got, &error)) {
            if (error.code == PENSTOCK_ETIMEOUT)
                peer_connection_complain(c, "closed inside a request: %s", error.message);
            return atomic_load(&c->server->draining) ? PEER_END_LINGER : PEER_END_CLOSE;
        }
        if (got == 0)
            return PEER_END_CLOSE;
        have += got;
        size_t n = have / size;
        int code = answer(&transfer, c, requests, raw, n, &error);
        if (code < 0)
            return broken(c, cut_short(c->served, requests, raw, n), &error);
        if (code > 0)
            return PEER_END_LINGER;
        have -= n * size;
        memmove(raw, raw + n * size, have);
    }
}
