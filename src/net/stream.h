/* One byte stream. All I/O after accept and dial goes through this table, so that TLS can take a plain stream's place;
 * a stream that cannot sendfile says so, and the caller falls back.
 *
 * The fd may be blocking or not. Not (the client's engine): -EAGAIN means wait. Blocking (the peer's threads): a call
 * waits by itself, for as long as the socket's own SO_RCVTIMEO or SO_SNDTIMEO lets it (0, the default, is for ever),
 * and -EAGAIN means that this time passed without one byte moved; a write that moved some returns their number. Whoever
 * writes to a blocking stream sets SO_SNDTIMEO first, else one that never reads holds it for ever. Reads need no
 * SO_RCVTIMEO where wait() comes first.
 *
 * Nothing here raises SIGPIPE, whatever the process has made of it: a closed connection is -EPIPE and no more. A stream
 * may be read by one thread and written by another. */
#ifndef PENSTOCK_NET_STREAM_H
#define PENSTOCK_NET_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <penstock/error.h>

struct net_stream;

struct net_stream_ops {
    /* Bytes moved (0 from readv: end of stream), or a negative errno. EINTR is never returned. */
    ssize_t (*readv)(struct net_stream *stream, const struct iovec *iov, int n);
    /* Like readv, but rather than for the first byte it waits for so many, or for as many as the receive window takes:
     * a long message then wakes its reader, and makes its sender wake him, some times and not at every segment.
     * -EAGAIN: none came until the deadline; where some did they are returned, however few. */
    ssize_t (*readv_much)(struct net_stream *stream, const struct iovec *iov, int n, size_t much_bytes,
                          int64_t deadline_ns);
    ssize_t (*writev)(struct net_stream *stream, const struct iovec *iov, int n,
                      bool more); /* more: hold back a short segment */
    /* From offset on, without the file's own position. -EOPNOTSUPP: fall back; 0: the file ends there. NULL: never can.
     */
    ssize_t (*sendfile)(struct net_stream *stream, int file_fd, uint64_t offset, size_t len, bool more);
    /* Like writev, but the kernel may send the very pages that iov lies in, uncopied: as with sendfile, what they hold
     * when they leave is what is sent. A caller that has begun goes on with the rest of that iov until all of it has
     * gone. -EOPNOTSUPP: nothing moved, writev goes on from here. NULL: never can. */
    ssize_t (*write_pages)(struct net_stream *stream, const struct iovec *iov, int n, bool more);
    /* Until events (POLLIN, POLLOUT) hold. 0, or -ETIMEDOUT, or a negative errno. */
    int (*wait)(struct net_stream *stream, short events, int64_t deadline_ns);
    void (*shutdown)(struct net_stream *stream, int how); /* SHUT_RD, SHUT_WR, SHUT_RDWR; from any thread */
    void (*close)(struct net_stream *stream);             /* and frees what the stream holds, not the struct */
};

struct net_stream {
    const struct net_stream_ops *ops;
    int fd; /* for epoll and socket options */
    /* The plain stream's: what write_pages has put into the pipe and not yet sent is the front of the iov that it will
     * be called with next. -1 until it is first called; the writing thread's alone. */
    int pipe[2];
    size_t piped_bytes;
    /* For whoever reads in bulk to set: of a connection within this machine, whose ends have one address, the plain
     * stream's readv keeps the window small. Cleared where it finds that the connection is another. */
    bool small_window;
    size_t unbounded_bytes; /* read since it last did */
};

/* A plain TCP (or UNIX) stream over fd, which it owns from now on. */
void net_stream_plain(struct net_stream *stream, int fd);

/* Whole reads and writes for whoever may block: they go on after short ones, and give up when no byte moves for
 * timeout_ns. ECLOSED at the end of the stream (read) or EPIPE and ECONNRESET; ETIMEOUT; ESYS. *got (may be NULL) says
 * how many bytes came. */
PENSTOCK_CHECKED int net_stream_read_all(struct net_stream *stream, void *to, size_t len, int64_t timeout_ns,
                                         size_t *got, struct penstock_error *error);
PENSTOCK_CHECKED int net_stream_write_all(struct net_stream *stream, const void *from, size_t len, int64_t timeout_ns,
                                          struct penstock_error *error);

/* The end of a refused or finished connection: shuts down the sending side, reads and discards until the other side
 * closes, for a bounded time. What was sent is then not lost to a reset when the stream is closed. */
void net_stream_linger(struct net_stream *stream, int64_t timeout_ns);
void net_stream_linger_close(struct net_stream *stream, int64_t timeout_ns);

#endif
