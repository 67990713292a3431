#include "requests.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

#define REQUEST_BYTES 20
#define REQUESTS_MAX 256 /* parsed and unanswered, at most */
#define LEN_MAX (UINT64_C(1) << 26)
#define FILE_DIGESTS 0xFFFFFFFEu
#define FILE_END 0xFFFFFFFFu
#define DIGESTS_MAX 4096

static const uint8_t status_err = 1;

struct request {
    uint32_t file;
    uint64_t offset, len;
};

static uint64_t take_u64(const uint8_t *at, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | at[i];
    return v;
}

static struct request parse(const uint8_t *at)
{
    return (struct request){ .file = (uint32_t)take_u64(at, 4),
                             .offset = take_u64(at + 4, 8),
                             .len = take_u64(at + 12, 8) };
}

static bool acceptable(const struct request *r, const struct peer_model *model)
{
    return r->file < model->n_files && r->len >= 1 && r->len <= LEN_MAX &&
           base_range_inside(r->offset, r->len, model->files[r->file].len_bytes);
}

/* [u8 STATUS_OK][u32 n]{[16 bytes]}*n. The header is on this frame: it goes out before the function returns. */
static int answer_digests(struct peer_transfer *transfer, const struct peer_connection *c, struct peer_model *model,
                          const struct request *r, bool more, struct penstock_error *error)
{
    uint64_t file = r->offset, first = r->len;
    if (c->server->options->no_digests || file >= model->n_files || first >= model->digests.files[file].chunks)
        return peer_transfer_bytes(transfer, &status_err, 1, error);

    const struct model_file_digests *digests = &model->digests.files[file];
    uint64_t known = atomic_load(&digests->known), n = known > first ? known - first : 0;
    if (n == 0 && atomic_load(&model->files[file].no_digests))
        return peer_transfer_bytes(transfer, &status_err, 1, error);
    n = base_min_u64(n, DIGESTS_MAX);
    const uint8_t head[5] = { 0, (uint8_t)n, (uint8_t)(n >> 8), 0, 0 };
    int code = peer_transfer_bytes(transfer, head, sizeof head, error);
    if (code == 0 && n > 0)
        code = peer_transfer_bytes(transfer, digests->at[first], (size_t)n * PENSTOCK_DIGEST_BYTES, error);
    return code ? code : peer_transfer_flush(transfer, more, error);
}

/* Answers n requests. 1: the client asked for the end. */
static int answer(struct peer_transfer *transfer, const struct peer_connection *c, struct peer_model *model,
                  const uint8_t *raw, size_t n, struct penstock_error *error)
{
    for (size_t i = 0; i < n; i++) {
        struct request r = parse(raw + i * REQUEST_BYTES);
        bool more = i + 1 < n;
        int code;
        if (r.file == FILE_END)
            return (code = peer_transfer_flush(transfer, false, error)) ? code : 1;
        if (r.file == FILE_DIGESTS)
            code = answer_digests(transfer, c, model, &r, more, error);
        else if (acceptable(&r, model))
            code = peer_transfer_range(transfer, &model->files[r.file], r.offset, r.len, more, error);
        else
            code = peer_transfer_bytes(transfer, &status_err, 1, error);
        if (code)
            return code;
    }
    return peer_transfer_flush(transfer, false, error);
}

static enum peer_end broken(struct peer_connection *c, const struct peer_model *model,
                            const struct penstock_error *error)
{
    if (error->code == PENSTOCK_ECLOSED)
        base_log_debug("client %s: %s", c->client, error->message);
    else if (error->code == PENSTOCK_ECORRUPT)
        base_log_error("client %s: closed, it could not be given what it was promised: %s: %s", c->client, model->id,
                       error->message);
    else
        peer_connection_complain(c, "dropped: %s", error->message);
    return PEER_END_CLOSE;
}

enum peer_end peer_requests_serve(struct peer_connection *c, struct peer_model *model)
{
    uint8_t raw[REQUESTS_MAX * REQUEST_BYTES];
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
        size_t n = have / REQUEST_BYTES;
        int code = answer(&transfer, c, model, raw, n, &error);
        if (code < 0)
            return broken(c, model, &error);
        if (code > 0)
            return PEER_END_LINGER;
        have -= n * REQUEST_BYTES;
        memmove(raw, raw + n * REQUEST_BYTES, have);
    }
}
