#include "transfer.h"

#include <errno.h>

#include <penstock/wire.h>

#include "base/error.h"

static const uint8_t status_ok = PENSTOCK_STATUS_OK;

void peer_transfer_init(struct peer_transfer *transfer, struct net_stream *stream)
{
    /* Not the array: its pages are not to be touched before there is something to send. */
    transfer->stream = stream;
    transfer->sent_bytes = 0;
    transfer->no_sendfile = !stream->ops->sendfile;
    transfer->no_pages = !stream->ops->write_pages;
    transfer->copy = false;
    transfer->fleeting = false;
    transfer->n = 0;
    transfer->queued_bytes = 0;
}

/* What a negative errno of the stream means here. file is NULL where more than one may be meant. */
static int failed(ssize_t moved, const struct peer_file *file, struct penstock_error *error)
{
    const char *name = file ? file->name : "a file";
    switch (-moved) {
    case EPIPE:
    case ECONNRESET:
        return base_error_set(error, PENSTOCK_ECLOSED, "the client closed while a reply was being sent");
    case ETIMEDOUT: /* TCP_USER_TIMEOUT or keepalive */
        return base_error_set(error, PENSTOCK_ETIMEOUT, "the client's machine does not answer any more");
    case EFAULT:
        return base_error_set(error, PENSTOCK_ECORRUPT, "%s was cut short, or cannot be read, while it was sent", name);
    case EIO:
        return base_error_set(error, PENSTOCK_ECORRUPT, "%s cannot be read: I/O error", name);
    default:
        return base_error_sys(error, (int)-moved, "send to the client");
    }
}

/* Whether to try again after moved, which is what a call of the stream gave back; else the error is set. */
static bool go_on(ssize_t moved, unsigned *stalls, const struct peer_file *file, int *code,
                  struct penstock_error *error)
{
    if (moved > 0) {
        *stalls = 0;
        return true;
    }
    if (moved < 0 && moved != -EAGAIN) {
        *code = failed(moved, file, error);
        return false;
    }
    if (++*stalls < PEER_TRANSFER_STALLS)
        return true;
    *code = base_error_set(error, PENSTOCK_ETIMEOUT, "the client takes no bytes");
    return false;
}

static void advance(struct iovec **at, size_t moved)
{
    while (moved > 0 && moved >= (*at)->iov_len)
        moved -= (*at)++->iov_len;
    if (moved > 0) {
        (*at)->iov_base = (char *)(*at)->iov_base + moved;
        (*at)->iov_len -= moved;
    }
}

int peer_transfer_flush(struct peer_transfer *transfer, bool more, struct penstock_error *error)
{
    struct net_stream *stream = transfer->stream;
    struct iovec *at = transfer->queued, *end = at + transfer->n;
    /* Two iovecs a range; a status byte alone, with sendfile to follow, counts as one. */
    bool pages = !transfer->fleeting && transfer->queued_bytes >= (size_t)(end - at + 1) / 2 * PEER_PAGES_MIN_BYTES;
    unsigned stalls = 0;
    int code;

    transfer->n = 0;
    transfer->queued_bytes = 0;
    transfer->fleeting = false;
    while (at < end) {
        bool by_pages = pages && !transfer->no_pages;
        ssize_t moved = by_pages ? stream->ops->write_pages(stream, at, (int)(end - at), more)
                                 : stream->ops->writev(stream, at, (int)(end - at), more);
        if (by_pages && moved == -EOPNOTSUPP) {
            transfer->no_pages = true;
            continue;
        }
        if (!go_on(moved, &stalls, NULL, &code, error))
            return code;
        if (moved < 0)
            continue;
        transfer->sent_bytes += (uint64_t)moved;
        advance(&at, (size_t)moved);
    }
    return 0;
}

static int queue(struct peer_transfer *transfer, const void *bytes, size_t len, struct penstock_error *error)
{
    if (transfer->n == PEER_TRANSFER_IOVECS) {
        int code = peer_transfer_flush(transfer, true, error);
        if (code)
            return code;
    }
    /* What sends them only reads. */
    transfer->queued[transfer->n++] = (struct iovec){ .iov_base = (void *)(uintptr_t)bytes, .iov_len = len };
    transfer->queued_bytes += len;
    return 0;
}

int peer_transfer_bytes(struct peer_transfer *transfer, const void *bytes, size_t len, struct penstock_error *error)
{
    int code = queue(transfer, bytes, len, error);
    transfer->fleeting = true;
    return code;
}

/* 1: all of it went; 0: the stream cannot, and *offset and *len say what is left. */
static int by_sendfile(struct peer_transfer *transfer, const struct peer_file *file, uint64_t *offset, uint64_t *len,
                       bool more, struct penstock_error *error)
{
    unsigned stalls = 0;
    int code;

    while (*len > 0) {
        ssize_t moved = transfer->stream->ops->sendfile(transfer->stream, file->fd, *offset, *len, more);
        if (moved == -EOPNOTSUPP) {
            transfer->no_sendfile = true;
            return 0;
        }
        if (moved == 0)
            return failed(-EFAULT, file, error);
        if (!go_on(moved, &stalls, file, &code, error))
            return code;
        if (moved < 0)
            continue;
        transfer->sent_bytes += (uint64_t)moved;
        *offset += (uint64_t)moved;
        *len -= (uint64_t)moved;
    }
    return 1;
}

int peer_transfer_range(struct peer_transfer *transfer, const struct peer_file *file, uint64_t offset, uint64_t len,
                        bool more, struct penstock_error *error)
{
    uint64_t long_bytes = transfer->no_pages ? PEER_SENDFILE_OVER_WRITEV_BYTES : PEER_SENDFILE_MIN_BYTES;
    int code = queue(transfer, &status_ok, 1, error);
    if (code)
        return code;
    if (len >= long_bytes && !transfer->no_sendfile && !transfer->copy) {
        code = peer_transfer_flush(transfer, true, error);
        if (code == 0)
            code = by_sendfile(transfer, file, &offset, &len, more, error);
        if (code != 0)
            return code < 0 ? code : 0;
    }
    transfer->fleeting = transfer->fleeting || transfer->copy;
    return queue(transfer, file->mapping + offset, (size_t)len, error);
}
