#include "weight_requests.h"

#include <penstock/wire.h>

#include "base/checked.h"
#include "models.h"

static const uint8_t status_err = PENSTOCK_STATUS_ERR;

static struct penstock_range_request decode(const uint8_t *raw)
{
    struct penstock_range_request r;
    struct penstock_wire_fault fault;
    size_t consumed;
    (void)!penstock_range_request_decode(raw, PENSTOCK_RANGE_REQUEST_BYTES, &r, &consumed,
                                         &fault); /* whole ones always decode */
    return r;
}

static enum peer_request_kind parse(const struct peer_served *served, const uint8_t *raw, struct peer_range *range)
{
    const struct penstock_range_request r = decode(raw);
    if (r.file == PENSTOCK_FILE_END)
        return PEER_REQUEST_END;
    if (r.file == PENSTOCK_FILE_DIGESTS)
        return PEER_REQUEST_OTHER;
    if (r.file >= served->n_files || r.len < 1 || r.len > PENSTOCK_RANGE_BYTES_MAX ||
        !base_range_inside(r.offset, r.len, served->files[r.file].len_bytes))
        return PEER_REQUEST_REFUSED;
    *range = (struct peer_range){ .file = &served->files[r.file], .offset = r.offset, .len = r.len };
    return PEER_REQUEST_RANGE;
}

/* [u8 STATUS_OK][u32 n]{[16 bytes]}*n. The header is on this frame: it goes out before the function returns. */
static int answer_digests(struct peer_transfer *transfer, struct peer_connection *c, const uint8_t *raw, bool more,
                          struct penstock_error *error)
{
    const struct peer_model *model = peer_model_of(c->served);
    const struct penstock_range_request r = decode(raw);
    uint64_t file = r.offset, first = r.len;
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

const struct peer_requests peer_weight_requests = { .request_bytes = PENSTOCK_RANGE_REQUEST_BYTES,
                                                    .parse = parse,
                                                    .other = answer_digests };
