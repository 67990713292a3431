#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"

/* ---- the plain stream ---- */

/* A connection that does not leave this machine has next to no round trip. A window of megabytes only lets its sender
 * copy so far ahead that what waits has left the caches before it is copied out: a third of the rate, as measured. The
 * kernel widens it again, as it sees fit. */
#define NEAR_WINDOW_BYTES (512 << 10)
#define BOUND_EVERY_BYTES ((size_t)1 << 20)

static bool is_near(int fd)
{
    union {
        struct sockaddr_storage any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } here = { 0 }, there = { 0 };
    socklen_t here_len = sizeof here, there_len = sizeof there;
    if (getsockname(fd, (struct sockaddr *)&here, &here_len) != 0 ||
        getpeername(fd, (struct sockaddr *)&there, &there_len) != 0 || here.any.ss_family != there.any.ss_family)
        return false;
    if (here.any.ss_family == AF_INET)
        return here.in.sin_addr.s_addr == there.in.sin_addr.s_addr;
    return here.any.ss_family == AF_INET6 &&
           memcmp(&here.in6.sin6_addr, &there.in6.sin6_addr, sizeof here.in6.sin6_addr) == 0;
}

static void bound_window(struct net_stream *stream)
{
    int bytes = NEAR_WINDOW_BYTES;
    stream->small_window = is_near(stream->fd);
    stream->unbounded_bytes = 0;
    if (stream->small_window)
        (void)setsockopt(stream->fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &bytes, sizeof bytes);
}

static ssize_t receive(const struct net_stream *stream, const struct iovec *iov, int n, int flags)
{
    struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };
    ssize_t r;
    do
        r = recvmsg(stream->fd, &message, flags);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

static ssize_t plain_readv(struct net_stream *stream, const struct iovec *iov, int n)
{
    ssize_t r = receive(stream, iov, n, 0);
    if (r > 0 && stream->small_window && (stream->unbounded_bytes += (size_t)r) >= BOUND_EVERY_BYTES)
        bound_window(stream);
    return r;
}

static int plain_wait(struct net_stream *stream, short events, int64_t deadline_ns)
{
    struct pollfd polled = { .fd = stream->fd, .events = events };
    for (;;) {
        int r = poll(&polled, 1, base_poll_ms(deadline_ns));
        if (r > 0)
            return 0;
        if (r == 0 && base_now_ns() >= deadline_ns)
            return -ETIMEDOUT;
        if (r < 0 && errno != EINTR)
            return -errno;
    }
}

static void wake_at(const struct net_stream *stream, size_t bytes)
{
    int n = (int)base_min_u64(bytes, INT32_MAX);
    (void)setsockopt(stream->fd, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof n);
}

/* The mark holds for poll alone, and is taken back: a recvmsg that waits by itself counts against it what it has copied
 * already, and can sleep on before the last bytes of a message. */
static ssize_t plain_readv_much(struct net_stream *stream, const struct iovec *iov, int n, size_t much_bytes,
                                int64_t deadline_ns)
{
    ssize_t r = receive(stream, iov, n, MSG_DONTWAIT);
    if (r != -EAGAIN)
        return r;
    wake_at(stream, much_bytes);
    int waited = plain_wait(stream, POLLIN, deadline_ns);
    wake_at(stream, 1);
    return waited == 0 || waited == -ETIMEDOUT ? receive(stream, iov, n, MSG_DONTWAIT) : waited;
}

static ssize_t plain_writev(struct net_stream *stream, const struct iovec *iov, int n, bool more)
{
    const struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };
    ssize_t r;
    do
        r = sendmsg(stream->fd, &message, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

/* sendfile(2) alone has no MSG_NOSIGNAL. A SIGPIPE that it raises goes to the calling thread: blocked around the call,
 * it is taken back before anyone can see it, whatever the process does about SIGPIPE. Two system calls of some 100 ns,
 * where a sendfile that is worth its name takes microseconds. */
struct quiet {
    sigset_t pipe, before;
    bool was_pending;
};

static void quiet_begin(struct quiet *q)
{
    sigset_t pending;
    sigemptyset(&q->pipe);
    sigaddset(&q->pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &q->pipe, &q->before);
    /* One that waits already (it was blocked before) is not ours to take. */
    q->was_pending =
        sigismember(&q->before, SIGPIPE) == 1 && sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

static void quiet_end(struct quiet *q, bool raised)
{
    static const struct timespec at_once = { 0 };
    if (raised && !q->was_pending)
        while (sigtimedwait(&q->pipe, NULL, &at_once) < 0 && errno == EINTR) {
        }
    pthread_sigmask(SIG_SETMASK, &q->before, NULL);
}

/* There is no MSG_MORE either: more is only a wish, and the last segment leaves as it is. What comes before the file
 * (a status byte) is held back by a writev with more set. */
static ssize_t plain_sendfile(struct net_stream *stream, int file_fd, uint64_t offset, size_t len, bool more)
{
    (void)more;
    if (offset > INT64_MAX)
        return -EOVERFLOW;
    off_t at = (off_t)offset;
    struct quiet quiet;
    quiet_begin(&quiet);
    ssize_t r;
    do
        r = sendfile(stream->fd, file_fd, &at, len);
    while (r < 0 && errno == EINTR);
    int failed = r < 0 ? errno : 0;
    quiet_end(&quiet, failed == EPIPE);
    if (failed == EINVAL || failed == ENOSYS)
        return -EOPNOTSUPP;
    return failed ? -failed : r;
}

/* 1 MiB of pages, whole or in part, each of which takes a place. Where the user's pipes are at their limit
 * (pipe-user-pages-soft) a new one has next to none. */
enum { PIPE_WANTED_BYTES = 1 << 20, PIPE_NEEDED_BYTES = 64 << 10 };

static void drop_pipe(struct net_stream *stream)
{
    for (int i = 0; i < 2; i++) {
        if (stream->pipe[i] >= 0)
            (void)close(stream->pipe[i]);
        stream->pipe[i] = -1;
    }
    stream->piped_bytes = 0;
}

static bool open_pipe(struct net_stream *stream)
{
    if (stream->pipe[0] >= 0)
        return true;
    if (pipe2(stream->pipe, O_CLOEXEC) < 0) {
        stream->pipe[0] = stream->pipe[1] = -1;
        return false;
    }
    if (fcntl(stream->pipe[1], F_SETPIPE_SZ, PIPE_WANTED_BYTES) < 0 &&
        fcntl(stream->pipe[1], F_GETPIPE_SZ) < PIPE_NEEDED_BYTES)
        drop_pipe(stream);
    return stream->pipe[0] >= 0;
}

/* vmsplice puts references to the pages into an empty pipe, and splice sends them. What is left in the pipe after a
 * short splice is the front of what the caller comes back with, so that it never needs to be known to him. */
static ssize_t plain_write_pages(struct net_stream *stream, const struct iovec *iov, int n, bool more)
{
    if (!open_pipe(stream))
        return -EOPNOTSUPP;
    ssize_t r;
    if (stream->piped_bytes == 0) {
        do
            r = vmsplice(stream->pipe[1], iov, (size_t)n, SPLICE_F_NONBLOCK);
        while (r < 0 && errno == EINTR);
        if (r < 0)
            return errno == EAGAIN || errno == ENOSYS || errno == EPERM ? -EOPNOTSUPP : -errno;
        stream->piped_bytes = (size_t)r;
    }
    size_t whole = 0;
    for (int i = 0; i < n; i++)
        whole += iov[i].iov_len;
    unsigned flags = more || stream->piped_bytes < whole ? SPLICE_F_MORE : 0;
    struct quiet quiet;
    quiet_begin(&quiet);
    do
        r = splice(stream->pipe[0], NULL, stream->fd, NULL, stream->piped_bytes, flags);
    while (r < 0 && errno == EINTR);
    int failed = r < 0 ? errno : 0;
    quiet_end(&quiet, failed == EPIPE);
    if (failed == EINVAL || failed == ENOSYS) {
        drop_pipe(stream);
        return -EOPNOTSUPP;
    }
    if (failed)
        return -failed;
    stream->piped_bytes -= (size_t)r;
    return r;
}

static void plain_shutdown(struct net_stream *stream, int how)
{
    (void)shutdown(stream->fd, how);
}

static void plain_close(struct net_stream *stream)
{
    drop_pipe(stream);
    (void)close(stream->fd);
    stream->fd = -1;
}

void net_stream_plain(struct net_stream *stream, int fd)
{
    static const struct net_stream_ops ops = {
        .readv = plain_readv,
        .readv_much = plain_readv_much,
        .writev = plain_writev,
        .sendfile = plain_sendfile,
        .write_pages = plain_write_pages,
        .wait = plain_wait,
        .shutdown = plain_shutdown,
        .close = plain_close,
    };
    *stream = (struct net_stream){ .ops = &ops, .fd = fd, .pipe = { -1, -1 } };
}

/* ---- whole reads and writes over any stream ---- */

static int broken(ssize_t moved, const char *doing, struct penstock_error *error)
{
    if (moved == -EPIPE || moved == -ECONNRESET)
        return base_error_set(error, PENSTOCK_ECLOSED, "%s: connection closed by the other side", doing);
    if (moved == -ETIMEDOUT)
        return base_error_set(error, PENSTOCK_ETIMEOUT, "%s: the other side does not answer any more", doing);
    return base_error_sys(error, (int)-moved, "%s", doing);
}

/* Until a call that moved nothing may be tried again. */
static int wait_to(struct net_stream *stream, short events, int64_t timeout_ns, const char *doing,
                   struct penstock_error *error)
{
    int r = stream->ops->wait(stream, events, base_deadline_ns(timeout_ns));
    if (r == -ETIMEDOUT)
        return base_error_set(error, PENSTOCK_ETIMEOUT, "%s: no byte moved in %.3g s", doing, (double)timeout_ns / 1e9);
    return r < 0 ? broken(r, doing, error) : 0;
}

int net_stream_read_all(struct net_stream *stream, void *to, size_t len, int64_t timeout_ns, size_t *got,
                        struct penstock_error *error)
{
    size_t done = 0;
    int code = 0;
    while (done < len && code == 0) {
        code = wait_to(stream, POLLIN, timeout_ns, "read", error);
        if (code)
            break;
        const struct iovec into = { .iov_base = (char *)to + done, .iov_len = len - done };
        ssize_t r = stream->ops->readv(stream, &into, 1);
        if (r > 0)
            done += (size_t)r;
        else if (r == 0)
            code = base_error_set(error, PENSTOCK_ECLOSED, "connection closed after %zu of %zu bytes", done, len);
        else if (r != -EAGAIN)
            code = broken(r, "read", error);
    }
    if (got)
        *got = done;
    return code;
}

int net_stream_write_all(struct net_stream *stream, const void *from, size_t len, int64_t timeout_ns,
                         struct penstock_error *error)
{
    size_t done = 0;
    /* A blocking stream comes back with EAGAIN by its own timeout, after which a byte may or may not find room. */
    int64_t deadline_ns = base_deadline_ns(timeout_ns);
    while (done < len) {
        const struct iovec out = { .iov_base = (char *)(uintptr_t)from + done, .iov_len = len - done };
        ssize_t r = stream->ops->writev(stream, &out, 1, false);
        if (r > 0) {
            done += (size_t)r;
            deadline_ns = base_deadline_ns(timeout_ns);
        } else if (r < 0 && r != -EAGAIN) {
            return broken(r, "write", error);
        } else {
            int w = stream->ops->wait(stream, POLLOUT, deadline_ns);
            if (w == -ETIMEDOUT || base_now_ns() >= deadline_ns)
                return base_error_set(error, PENSTOCK_ETIMEOUT, "write: the other side took no byte in %.3g s",
                                      (double)timeout_ns / 1e9);
            if (w < 0)
                return broken(w, "write", error);
        }
    }
    return 0;
}

void net_stream_linger(struct net_stream *stream, int64_t timeout_ns)
{
    int64_t deadline_ns = base_deadline_ns(timeout_ns);
    char sink[1024];
    const struct iovec into = { .iov_base = sink, .iov_len = sizeof sink };
    stream->ops->shutdown(stream, SHUT_WR);
    while (base_now_ns() < deadline_ns && stream->ops->wait(stream, POLLIN, deadline_ns) == 0) {
        ssize_t r = stream->ops->readv(stream, &into, 1);
        if (r == 0 || (r < 0 && r != -EAGAIN))
            break;
    }
}

void net_stream_linger_close(struct net_stream *stream, int64_t timeout_ns)
{
    net_stream_linger(stream, timeout_ns);
    stream->ops->close(stream);
}
