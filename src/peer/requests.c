#include "requests.h"

#include <string.h>
#include <sys/stat.h>

#include <penstock/wire.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

static const uint8_t status_err = PENSTOCK_STATUS_ERR;

static bool acceptable(const struct penstock_range_request *r, const struct peer_model *model)
{
    return r->file < model->served.n_files && r->len >= 1 && r->len <= PENSTOCK_RANGE_BYTES_MAX &&
           base_range_inside(r->offset, r->len, model->served.files[r->file].len_bytes);
}

/* [u8 STATUS_OK][u32 n]{[16 bytes]}*n. The header is on this frame: it goes out before the function returns. */
static int answer_digests(struct peer_transfer *transfer, const struct peer_connection *c, struct peer_model *model,
                          const struct penstock_range_request *r, bool more, struct penstock_error *error)
{
    uint64_t file = r->offset, first = r->len;
    if (c->server->options->no_digests || file >= model->served.n_files || first >= model->digests.files[file].chunks)
        return peer_transfer_bytes(transfer, &status_err, 1, error);

    const struct model_file_digests *digests = &model->digests.files[file];
    uint64_t known = atomic_load(&digests->known), n = known > first ? known - first : 0;
    if (n == 0 && atomic_load(&model->served.files[file].no_digests))
        return peer_transfer_bytes(transfer, &status_err, 1, error);
    n = base_min_u64(n, PENSTOCK_DIGESTS_MAX);
    const struct penstock_digests_head head = { .status = PENSTOCK_STATUS_OK, .n = (uint32_t)n };
    struct penstock_wire_fault fault;
    uint8_t bytes[PENSTOCK_DIGESTS_HEAD_BYTES_MAX];
    int code = peer_transfer_bytes(transfer, bytes, penstock_digests_head_encode(&head, bytes, &fault), error);
    if (code == 0 && n > 0)
        code = peer_transfer_bytes(transfer, digests->at[first], (size_t)n * PENSTOCK_DIGEST_BYTES, error);
    return code ? code : peer_transfer_flush(transfer, more, error);
}

static struct penstock_range_request decode(const uint8_t *raw, size_t i)
{
    struct penstock_range_request r;
    struct penstock_wire_fault fault;
    size_t consumed;
    (void)!penstock_range_request_decode(raw + i * PENSTOCK_RANGE_REQUEST_BYTES, PENSTOCK_RANGE_REQUEST_BYTES, &r,
                                         &consumed, &fault); /* whole ones always decode */
    return r;
}

/* A file's length now, looked at once for a run of requests to the same file. */
struct look {
    const struct peer_file *file;
    uint64_t len_bytes;
};

/* Whether the range still is in the file. What a file cut short has lost is refused while that can be said; and the
 * rest of its last page must not go out, which a mapping would give as zeros. */
static bool still_there(struct look *look, const struct peer_file *file, const struct penstock_range_request *r)
{
    if (look->file != file) {
        struct stat st;
        *look = (struct look){ .file = file, .len_bytes = fstat(file->fd, &st) == 0 ? (uint64_t)st.st_size : 0 };
    }
    return base_range_inside(r->offset, r->len, look->len_bytes);
}

/* STATUS_ERR for what was promised by the manifest and is no longer there. */
static int refuse_lost(struct peer_transfer *transfer, struct peer_connection *c, const struct peer_model *model,
                       const struct peer_file *file, struct penstock_error *error)
{
    peer_connection_complain(c, "refused a range: %s: %s was cut short while it was served", model->served.id,
                             file->name);
    return peer_transfer_bytes(transfer, &status_err, 1, error);
}

/* Answers n requests. 1: the client asked for the end. */
static int answer(struct peer_transfer *transfer, struct peer_connection *c, struct peer_model *model,
                  const uint8_t *raw, size_t n, struct penstock_error *error)
{
    struct look look = { 0 };
    for (size_t i = 0; i < n; i++) {
        struct penstock_range_request r = decode(raw, i);
        bool more = i + 1 < n;
        int code;
        if (r.file == PENSTOCK_FILE_END)
            return (code = peer_transfer_flush(transfer, false, error)) ? code : 1;
        if (r.file == PENSTOCK_FILE_DIGESTS)
            code = answer_digests(transfer, c, model, &r, more, error);
        else if (acceptable(&r, model))
            code = still_there(&look, &model->served.files[r.file], &r)
                       ? peer_transfer_range(transfer, &model->served.files[r.file], r.offset, r.len, more, error)
                       : refuse_lost(transfer, c, model, &model->served.files[r.file], error);
        else
            code = peer_transfer_bytes(transfer, &status_err, 1, error);
        if (code)
            return code;
    }
    return peer_transfer_flush(transfer, false, error);
}

/* The first file of n requests that is shorter now than it was staged: a writev of many ranges does not say which one
 * it could not read. */
static const struct peer_file *cut_short(const struct peer_model *model, const uint8_t *raw, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct penstock_range_request r = decode(raw, i);
        struct stat st;
        if (acceptable(&r, model) && fstat(model->served.files[r.file].fd, &st) == 0 &&
            (uint64_t)st.st_size < model->served.files[r.file].len_bytes)
            return &model->served.files[r.file];
    }
    return NULL;
}

/* Of the n requests that were being answered. */
static enum peer_end broken(struct peer_connection *c, const struct peer_model *model, const uint8_t *raw, size_t n,
                            const struct penstock_error *error)
{
    if (error->code == PENSTOCK_ECLOSED) {
        base_log_debug("client %s: %s", c->client, error->message);
    } else if (error->code == PENSTOCK_ECORRUPT) {
        const struct peer_file *file = cut_short(model, raw, n);
        base_log_error("client %s: closed, it could not be given what it was promised: %s: %s%s", c->client,
                       model->served.id, file ? file->name : error->message,
                       file ? " was cut short while it was served" : "");
    } else {
        peer_connection_complain(c, "dropped: %s", error->message);
    }
    return PEER_END_CLOSE;
}

enum peer_end peer_requests_serve(struct peer_connection *c, struct peer_model *model)
{
    uint8_t raw[PENSTOCK_UNANSWERED_MAX * PENSTOCK_RANGE_REQUEST_BYTES];
    size_t have = 0;
    struct peer_transfer transfer;
    struct penstock_error error;

    peer_transfer_init(&transfer, &c->stream);
    for (;;) {
        size_t got;
        if (peer_connection_read_some(c, raw + have, sizeof raw - have, have > 0, &got, &error)) {
            if (error.code == PENSTOCK_ETIMEOUT)
                peer_connection_complain(c, "closed inside a request: %s", error.message);
            return atomic_load(&c->server->draining) ? PEER_END_LINGER : PEER_END_CLOSE;
        }
        if (got == 0)
            return PEER_END_CLOSE;
        have += got;
        size_t n = have / PENSTOCK_RANGE_REQUEST_BYTES;
        int code = answer(&transfer, c, model, raw, n, &error);
        if (code < 0)
            return broken(c, model, raw, n, &error);
        if (code > 0)
            return PEER_END_LINGER;
        have -= n * PENSTOCK_RANGE_REQUEST_BYTES;
        memmove(raw, raw + n * PENSTOCK_RANGE_REQUEST_BYTES, have);
    }
}
