#include "script_stream.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static struct script_stream *script_of(struct net_stream *stream)
{
    return (struct script_stream *)(void *)stream;
}

static size_t piece_of(const struct script_stream *s)
{
    return s->piece ? s->piece : SIZE_MAX;
}

static ssize_t script_readv(struct net_stream *stream, const struct iovec *iov, int n)
{
    struct script_stream *s = script_of(stream);
    size_t moved = 0;
    s->reads++;
    for (int i = 0; i < n; i++) {
        size_t take = least(least(iov[i].iov_len, s->in_len - s->in_at), piece_of(s) - moved);
        if (take)
            memcpy(iov[i].iov_base, s->in + s->in_at, take);
        s->in_at += take;
        moved += take;
    }
    return moved ? (ssize_t)moved : -s->in_end;
}

static ssize_t script_writev(struct net_stream *stream, const struct iovec *iov, int n, bool more)
{
    struct script_stream *s = script_of(stream);
    size_t moved = 0;
    s->writes++;
    s->more = more;
    for (int i = 0; i < n; i++) {
        size_t take = least(least(iov[i].iov_len, s->out_max - s->out_len), piece_of(s) - moved);
        if (take)
            memcpy(s->out + s->out_len, iov[i].iov_base, take);
        s->out_len += take;
        moved += take;
    }
    return moved ? (ssize_t)moved : -s->out_end;
}

/* Time does not pass here: what would have to be waited for never comes. */
static int script_wait(struct net_stream *stream, short events, int64_t deadline_ns)
{
    struct script_stream *s = script_of(stream);
    (void)deadline_ns;
    s->waits++;
    bool silent = s->in_at == s->in_len && s->in_end == EAGAIN;
    bool full = s->out_len == s->out_max && s->out_end == EAGAIN;
    return ((events & POLLIN) && silent) || ((events & POLLOUT) && full) ? -ETIMEDOUT : 0;
}

static void script_shutdown(struct net_stream *stream, int how)
{
    (void)how;
    script_of(stream)->shut = true;
}

static void script_close(struct net_stream *stream)
{
    struct script_stream *s = script_of(stream);
    s->closed = true;
    free(s->out);
    s->out = NULL;
}

void script_stream_init(struct script_stream *s, const void *in, size_t in_len, size_t out_max)
{
    static const struct net_stream_ops ops = {
        .readv = script_readv,
        .writev = script_writev,
        .wait = script_wait,
        .shutdown = script_shutdown,
        .close = script_close,
    };
    *s = (struct script_stream){
        .stream = { .ops = &ops, .fd = -1 }, .in = in, .in_len = in_len, .out_max = out_max, .out_end = EPIPE
    };
    s->out = malloc(out_max ? out_max : 1);
    if (!s->out)
        abort();
}
