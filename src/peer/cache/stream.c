#include "stream.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

struct peer_cache_stream *peer_cache_stream_new(struct peer_connection *connection, bool tcp, uint64_t body_bytes)
{
    struct peer_cache_stream *s = malloc(sizeof *s);
    if (!s)
        return NULL;
    s->connection = connection;
    s->framing = (struct penstock_paging_framing){ .tcp = tcp };
    s->read_max = body_bytes < PEER_CACHE_LONG_BODY_BYTES ? sizeof s->in : PEER_CACHE_HEADS_BYTES;
    s->start = s->end = 0;
    peer_connection_time_reads(connection);
    return s;
}

static void move_to_front(struct peer_cache_stream *s)
{
    if (s->start == 0)
        return;
    memmove(s->in, s->in + s->start, s->end - s->start);
    s->end -= s->start;
    s->start = 0;
}

static struct iovec room(struct peer_cache_stream *s)
{
    return (struct iovec){ .iov_base = s->in + s->end, .iov_len = base_min_u64(s->read_max, sizeof s->in - s->end) };
}

bool peer_cache_stream_wait(struct peer_cache_stream *s, enum peer_end *end)
{
    struct peer_connection *c = s->connection;
    struct penstock_error error;
    bool inside = s->end > s->start;
    size_t got = 0;
    move_to_front(s);
    const struct iovec into = room(s); /* never empty: the longest request fits, and would have been decoded */
    if (peer_connection_readv(c, &into, 1, inside, &got, &error)) {
        *end = peer_connection_ended(c, "among its cache requests", inside, &error);
        return false;
    }
    if (got == 0 && inside)
        peer_connection_complain(c, "closed inside a cache request");
    if (got == 0)
        *end = atomic_load(&c->server->draining) ? PEER_END_LINGER : PEER_END_CLOSE;
    s->end += got;
    return got > 0;
}

void peer_cache_stream_look(struct peer_cache_stream *s, bool may_move)
{
    struct net_stream *stream = &s->connection->stream;
    if (may_move)
        move_to_front(s);
    const struct iovec into = room(s);
    if (into.iov_len == 0 || stream->ops->wait(stream, POLLIN, 0) != 0)
        return;
    ssize_t got = stream->ops->readv(stream, &into, 1); /* an end, or an error, is for who waits */
    s->end += got > 0 ? (size_t)got : 0;
}

enum penstock_decode peer_cache_stream_next(struct peer_cache_stream *s, struct penstock_paging_request *request,
                                            struct penstock_wire_fault *fault)
{
    size_t consumed = 0;
    enum penstock_decode d = penstock_paging_request_decode(s->in + s->start, s->end - s->start, &s->framing, s->keys,
                                                            request, &consumed, fault);
    if (d == PENSTOCK_DECODE_OK)
        s->start += consumed;
    return d;
}

int peer_cache_stream_body(struct peer_cache_stream *s, uint8_t *to, uint64_t len, struct penstock_error *error)
{
    s->start = s->end = 0;
    while (len > 0) {
        struct iovec into[2] = { { .iov_base = to, .iov_len = len }, room(s) };
        size_t got = 0;
        if (!to)
            into[0] = (struct iovec){ .iov_base = s->in, .iov_len = base_min_u64(len, sizeof s->in) };
        int code = peer_connection_readv_much(s->connection, into, to ? 2 : 1, len, &got, error);
        if (code == 0 && got == 0)
            code = base_error_set(error, PENSTOCK_ECLOSED, "%llu bytes of it are missing", (unsigned long long)len);
        if (code)
            return code;
        uint64_t of_body = base_min_u64(got, len);
        len -= of_body;
        to = to ? to + of_body : NULL;
        s->end = got - of_body;
    }
    return 0;
}

enum peer_end peer_cache_stream_refuse(const struct peer_cache_stream *s, const struct penstock_wire_fault *fault)
{
    char words[200];
    penstock_wire_fault_format(fault, words, sizeof words);
    peer_connection_complain(s->connection, "closed: %s", words);
    return PEER_END_LINGER;
}
