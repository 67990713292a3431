/* Requests out, replies in.
 *
 * A reply is a status byte and, if that is OK, the payload, which belongs straight in the caller's memory. One readv
 * covers the payload under way, the next status byte, the next payload and so on, as if every status were going to be
 * OK. Where one is not, what followed it has landed too far ahead: it is gathered in s->ahead, and replayed from there
 * to where it belongs. That is why a read goes at most CLIENT_AHEAD_BYTES_MAX beyond the first unknown status.
 *
 * Only replies all of whose bytes somebody waits for are read ahead of their status: dropped bytes share one piece of
 * memory, where those to be replayed would overwrite each other. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "client/session.h"
#include "client/tier.h"

/* What one call may move before the caller gets a turn. */
#define RECEIVE_BUDGET_BYTES (UINT64_C(128) << 20)

/* ---- out ---- */

/* Whose request is the next to be sent; NULL: none, for now. */
static struct client_op *next_to_send(const struct penstock_session *s)
{
    for (size_t i = 0; i < CLIENT_URGENCIES; i++) {
        const struct base_list *list = &s->unsent[i];
        if (!base_list_empty(list) && (i == 0 || s->later_in_flight < s->tier->later_max(s)))
            return base_list_entry(list->next, struct client_op, queue);
    }
    return NULL;
}

bool client_flight_may_fill(const struct penstock_session *s)
{
    /* In batches: only once half of what may be in flight has been answered. */
    return !client_has_out(s) && s->flight_n <= CLIENT_FLIGHTS_MAX / 2 &&
           s->in_flight_bytes <= s->tier->in_flight_bytes_max / 2 && next_to_send(s);
}

static void push(struct penstock_session *s, struct client_op *op)
{
    struct client_flight *f = client_flight_at(s, s->flight_n);
    *f = (struct client_flight){ .op = op, .request = op->sent, .later = op->urgency > 0 };
    struct iovec body = { 0 };
    s->out_end += s->tier->push(s, op, f, s->out + s->out_end, &body);
    if (body.iov_len > 0)
        client_engine_attach(s, op, &body);
    s->in_flight_bytes += f->len_bytes;
    s->later_in_flight += f->later;
    s->flight_n++;
    op->sent++;
    if (op->sent == op->plan.n_requests)
        base_list_remove(&op->queue);
}

void client_flight_fill(struct penstock_session *s)
{
    if (!client_flight_may_fill(s))
        return;
    if (s->flight_n == 0)
        s->progress_ns = base_now_ns();
    struct client_op *op;
    while (s->flight_n < CLIENT_FLIGHTS_MAX && s->in_flight_bytes < s->tier->in_flight_bytes_max &&
           (op = next_to_send(s)))
        push(s, op);
}

void client_flight_drop(struct penstock_session *s, const struct client_op *op)
{
    for (uint32_t i = 0; i < s->flight_n; i++) {
        struct client_flight *f = client_flight_at(s, i);
        if (f->op == op)
            f->op = NULL;
    }
}

/* ---- in: where the parser stands ---- */

static void next_flight(struct penstock_session *s)
{
    const struct client_flight *f = client_flight_at(s, 0);
    s->in_flight_bytes -= f->len_bytes;
    s->later_in_flight -= f->later;
    s->flight_head = (s->flight_head + 1) % CLIENT_FLIGHTS_MAX;
    s->flight_n--;
    s->phase = CLIENT_STATUS;
}

static const struct iovec *pieces_of(const struct client_flight *f)
{
    return f->digests ? f->op->own_pieces : f->op->plan.pieces;
}

static void begin_payload(struct penstock_session *s, const struct client_flight *f)
{
    s->phase = CLIENT_PAYLOAD;
    s->payload_left = f->len_bytes;
    s->piece = f->op && !f->digests ? f->op->plan.requests[f->request].piece : 0;
    s->piece_at = 0;
}

/* All of it has landed. */
static void end_op(struct penstock_session *s, struct client_op *op)
{
    struct penstock_error error;
    int code = s->tier->landed ? s->tier->landed(s, op, &error) : 0;
    if (code)
        client_engine_name(s, &error);
    client_op_end(s, op, code, code ? &error : NULL);
}

static void end_reply(struct penstock_session *s)
{
    struct client_flight f = *client_flight_at(s, 0);
    next_flight(s);
    struct client_op *op = f.op;
    if (!op)
        return;
    op->answered++;
    op->landed_bytes += f.digests ? op->own_pieces[0].iov_len : f.len_bytes - f.waste_bytes;
    if (op->answered == op->plan.n_requests)
        end_op(s, op);
}

static void take_payload(struct penstock_session *s, const struct client_flight *f)
{
    begin_payload(s, f);
    if (f->len_bytes == 0)
        end_reply(s);
}

static void refuse(struct penstock_session *s, uint8_t status)
{
    struct client_flight f = *client_flight_at(s, 0);
    struct penstock_error error;
    next_flight(s);
    if (!f.op)
        return;
    int code = s->tier->refused(s, &f, status, &error);
    f.op->answered++;
    if (code == 0) {
        if (f.op->answered == f.op->plan.n_requests)
            end_op(s, f.op);
        return;
    }
    client_engine_name(s, &error);
    client_op_end(s, f.op, code, &error);
}

static void take_status(struct penstock_session *s, uint8_t status)
{
    struct client_flight *f = client_flight_at(s, 0);
    s->heard = true;
    if (status != PENSTOCK_STATUS_OK)
        refuse(s, status);
    else if (f->digests)
        s->phase = CLIENT_COUNT, s->count_bytes = 0;
    else
        take_payload(s, f);
}

/* The number of digests is there: from here on they are a payload like any other. */
static int take_count(struct penstock_session *s, struct penstock_error *error)
{
    struct client_flight *f = client_flight_at(s, 0);
    uint32_t n =
        (uint32_t)s->count[0] | (uint32_t)s->count[1] << 8 | (uint32_t)s->count[2] << 16 | (uint32_t)s->count[3] << 24;
    if (n > PENSTOCK_DIGESTS_MAX || n > f->chunks_left)
        return base_error_set(error, PENSTOCK_EPROTO, "implausible digest count: %" PRIu32, n);
    f->len_bytes = n * PENSTOCK_DIGEST_BYTES;
    s->in_flight_bytes += f->len_bytes;
    if (f->op) {
        uint64_t wanted = base_min_u64(n, f->op->digests_max) * PENSTOCK_DIGEST_BYTES;
        f->op->own_pieces[0].iov_len = wanted;
        f->op->own_pieces[1] = (struct iovec){ .iov_base = s->scratch, .iov_len = f->len_bytes - wanted };
    }
    take_payload(s, f);
    return 0;
}

/* n bytes of the payload are in place. */
static void advance_payload(struct penstock_session *s, size_t n)
{
    const struct client_flight *f = client_flight_at(s, 0);
    s->payload_left -= n;
    if (s->payload_left == 0) {
        end_reply(s);
        return;
    }
    if (!f->op)
        return;
    const struct iovec *pieces = pieces_of(f);
    s->piece_at += n;
    while (s->piece_at >= pieces[s->piece].iov_len) {
        s->piece_at -= pieces[s->piece].iov_len;
        s->piece++;
    }
}

/* ---- in: one readv ---- */

struct landing {
    struct iovec iov[CLIENT_IOV_MAX];
    int n;
    size_t bytes;
    uint8_t status[CLIENT_IOV_MAX]; /* as many as there can be */
    size_t statuses;
};

static bool lay(struct landing *l, void *at, size_t len)
{
    if (l->n == CLIENT_IOV_MAX)
        return false;
    l->iov[l->n++] = (struct iovec){ .iov_base = at, .iov_len = len };
    l->bytes += len;
    return true;
}

/* The pieces of left bytes, from (piece, piece_at) on. False: they did not all fit, in number or below limit. */
static bool lay_pieces(struct landing *l, const struct iovec *piece, size_t piece_at, size_t left, size_t limit)
{
    while (left > 0) {
        size_t len = base_min_u64(piece->iov_len - piece_at, left);
        bool cut = l->bytes + len > limit;
        if (cut)
            len = limit - l->bytes;
        if (len > 0 && !lay(l, (uint8_t *)piece->iov_base + piece_at, len))
            return false;
        if (cut)
            return false;
        left -= len;
        piece_at = 0;
        piece++;
    }
    return true;
}

static void lay_out(struct penstock_session *s, struct landing *l)
{
    l->n = 0;
    l->bytes = 0;
    l->statuses = 0;
    uint32_t i = 0;
    if (s->flight_n > 0 && s->phase != CLIENT_STATUS) {
        const struct client_flight *f = client_flight_at(s, 0);
        if (s->phase == CLIENT_COUNT) {
            (void)lay(l, s->count + s->count_bytes, sizeof s->count - s->count_bytes);
            return;
        }
        if (!f->op) {
            (void)lay(l, s->scratch, base_min_u64(s->payload_left, CLIENT_SCRATCH_BYTES));
            return;
        }
        if (!lay_pieces(l, pieces_of(f) + s->piece, s->piece_at, s->payload_left, SIZE_MAX))
            return;
        i = 1;
    }
    size_t limit = l->bytes + CLIENT_AHEAD_BYTES_MAX;
    for (; i < s->flight_n; i++) {
        const struct client_flight *f = client_flight_at(s, i);
        if (l->bytes >= limit || !lay(l, &l->status[l->statuses], 1))
            return;
        l->statuses++;
        if (!f->op || f->digests || f->waste_bytes > 0 ||
            !lay_pieces(l, pieces_of(f) + f->op->plan.requests[f->request].piece, 0, f->len_bytes, limit))
            return;
    }
    if (l->n == 0)
        (void)lay(l, s->scratch, 1); /* nothing is due: to see the peer close, or talk out of turn */
}

/* Bytes that are not in place: every one is copied to where it belongs. */
static int replay(struct penstock_session *s, const uint8_t *at, size_t len, struct penstock_error *error)
{
    while (len > 0) {
        size_t n = 1;
        if (s->flight_n == 0)
            return base_error_set(error, PENSTOCK_EPROTO, "sent bytes that nobody asked for");
        const struct client_flight *f = client_flight_at(s, 0);
        if (s->phase == CLIENT_STATUS) {
            take_status(s, *at);
        } else if (s->phase == CLIENT_COUNT) {
            s->count[s->count_bytes++] = *at;
            int code = s->count_bytes == sizeof s->count ? take_count(s, error) : 0;
            if (code)
                return code;
        } else {
            n = base_min_u64(len, s->payload_left);
            if (f->op) {
                const struct iovec *piece = pieces_of(f) + s->piece;
                n = base_min_u64(n, piece->iov_len - s->piece_at);
                if (n > 0)
                    memcpy((uint8_t *)piece->iov_base + s->piece_at, at, n);
            }
            advance_payload(s, n);
        }
        at += n;
        len -= n;
    }
    return 0;
}

/* n bytes landed along l: tells the parser, up to the first status that is not OK. */
static int account(struct penstock_session *s, const struct landing *l, size_t n, struct penstock_error *error)
{
    if (s->flight_n == 0)
        return base_error_set(error, PENSTOCK_EPROTO, "sent bytes that nobody asked for");
    if (s->phase == CLIENT_COUNT) {
        s->count_bytes += n;
        return s->count_bytes == sizeof s->count ? take_count(s, error) : 0;
    }
    size_t status = 0, left = n;
    while (left > 0) {
        if (s->phase == CLIENT_PAYLOAD) {
            size_t part = base_min_u64(left, s->payload_left);
            advance_payload(s, part);
            left -= part;
            continue;
        }
        uint8_t value = l->status[status++];
        take_status(s, value);
        left--;
        if (value != PENSTOCK_STATUS_OK)
            break;
    }
    if (left == 0)
        return 0;

    /* The last `left` of the n bytes are ahead of their places. */
    size_t skip = n - left, gathered = 0;
    for (int i = 0; gathered < left; i++) {
        size_t len = l->iov[i].iov_len;
        if (skip >= len) {
            skip -= len;
            continue;
        }
        size_t part = base_min_u64(len - skip, left - gathered);
        memcpy(s->ahead + gathered, (uint8_t *)l->iov[i].iov_base + skip, part);
        gathered += part;
        skip = 0;
    }
    return replay(s, s->ahead, left, error);
}

static int closed(struct penstock_session *s, struct penstock_error *error)
{
    if (s->heard || s->tier->frozen_tcp)
        base_error_set(error, PENSTOCK_ECLOSED, "closed the connection: it ended, or a file changed under it");
    else
        base_error_set(error, PENSTOCK_ECLOSED,
                       "closed the connection after the mode byte for TCP; does it speak only verbs?%s%.200s%s",
                       s->why_tcp ? " (no RDMA here: " : "", s->why_tcp ? s->why_tcp : "", s->why_tcp ? ")" : "");
    return client_rejoin(s, error);
}

int client_flight_receive(struct penstock_session *s, struct penstock_error *error)
{
    struct landing l;
    for (uint64_t moved = 0; moved < RECEIVE_BUDGET_BYTES;) {
        lay_out(s, &l);
        ssize_t n = s->stream.ops->readv(&s->stream, l.iov, l.n);
        if (n == -EAGAIN)
            return -EAGAIN;
        if (n == 0 || n == -ECONNRESET || n == -EPIPE)
            return closed(s, error);
        if (n < 0)
            return client_engine_broken((int)-n, "receive", error);
        moved += (size_t)n;
        s->progress_ns = base_now_ns();
        int code = account(s, &l, (size_t)n, error);
        if (code)
            return code;
        client_flight_fill(s);
        code = client_engine_flush(s, error);
        if (code)
            return code;
        if (s->flight_n == 0 && !next_to_send(s))
            return -EAGAIN;
    }
    return 0;
}
