#include <errno.h>
#include <poll.h>

#include "base/clock.h"
#include "handshake.h"

const struct net_handshake_deadlines net_handshake_client_deadlines = { .patient_ns = 1800 * BASE_SECOND_NS,
                                                                        .message_ns = 30 * BASE_SECOND_NS };
const struct net_handshake_deadlines net_handshake_peer_deadlines = { .patient_ns = 300 * BASE_SECOND_NS,
                                                                      .message_ns = 30 * BASE_SECOND_NS };

/* Moves what can be moved now. Bytes moved, 0: end of stream, or a negative errno. */
static ssize_t move(struct net_handshake *h, struct net_stream *stream)
{
    uint8_t in[4096];
    if (net_handshake_next(h) == NET_HANDSHAKE_READ) {
        size_t want = net_handshake_want(h);
        const struct iovec into = { .iov_base = in, .iov_len = want < sizeof in ? want : sizeof in };
        ssize_t r = stream->ops->readv(stream, &into, 1);
        if (r > 0)
            net_handshake_feed(h, in, (size_t)r);
        return r;
    }
    size_t len;
    const uint8_t *out = net_handshake_output(h, &len);
    const struct iovec from = { .iov_base = (void *)(uintptr_t)out, .iov_len = len };
    ssize_t r = stream->ops->writev(stream, &from, 1, false);
    if (r > 0)
        net_handshake_wrote(h, (size_t)r);
    return r;
}

/* Until a byte has moved, or none has for too long. */
static void advance(struct net_handshake *h, struct net_stream *stream, const struct net_handshake_deadlines *deadlines)
{
    int64_t timeout_ns = net_handshake_is_patient(h) ? deadlines->patient_ns : deadlines->message_ns;
    int64_t deadline_ns = base_deadline_ns(timeout_ns);
    short events = net_handshake_next(h) == NET_HANDSHAKE_READ ? POLLIN : POLLOUT;
    for (;;) {
        int w = stream->ops->wait(stream, events, deadline_ns);
        ssize_t r = w < 0 ? w : move(h, stream);
        if (r > 0)
            return;
        if (w == -ETIMEDOUT || (r == -EAGAIN && base_now_ns() >= deadline_ns)) {
            net_handshake_expire(h, timeout_ns);
            return;
        }
        if (r != -EAGAIN) {
            net_handshake_end(h, (int)-r);
            return;
        }
    }
}

int net_handshake_run(struct net_handshake *h, struct net_stream *stream,
                      const struct net_handshake_deadlines *deadlines, struct penstock_error *error)
{
    while (net_handshake_next(h) == NET_HANDSHAKE_READ || net_handshake_next(h) == NET_HANDSHAKE_WRITE)
        advance(h, stream, deadlines);
    if (net_handshake_next(h) == NET_HANDSHAKE_DONE)
        return 0;
    if (error)
        *error = *net_handshake_error(h);
    return net_handshake_error(h)->code;
}

static int run_and_free(struct net_handshake *h, struct net_stream *stream,
                        const struct net_handshake_deadlines *deadlines, size_t *n_rails, struct penstock_error *error)
{
    int code = net_handshake_run(h, stream, deadlines, error);
    if (code == 0)
        *n_rails = net_handshake_n_rails(h);
    net_handshake_free(h);
    return code;
}

int net_handshake_as_client(struct net_stream *stream, const struct net_handshake_config *config,
                            const struct net_handshake_deadlines *deadlines, size_t *n_rails,
                            struct penstock_error *error)
{
    struct net_handshake *h;
    int code = net_handshake_client_new(config, &h, error);
    if (code)
        return code;
    return run_and_free(h, stream, deadlines ? deadlines : &net_handshake_client_deadlines, n_rails, error);
}

int net_handshake_as_peer(struct net_stream *stream, const struct net_handshake_config *config,
                          const struct net_handshake_deadlines *deadlines, size_t *n_rails,
                          struct penstock_error *error)
{
    struct net_handshake *h;
    int code = net_handshake_peer_new(config, &h, error);
    if (code)
        return code;
    return run_and_free(h, stream, deadlines ? deadlines : &net_handshake_peer_deadlines, n_rails, error);
}
