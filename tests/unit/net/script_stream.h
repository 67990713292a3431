/* A stream in memory that does what a test tells it to: it hands out and takes bytes in short pieces, and breaks at a
 * given byte. It cannot sendfile. */
#ifndef PENSTOCK_TEST_SCRIPT_STREAM_H
#define PENSTOCK_TEST_SCRIPT_STREAM_H

#include "net/stream.h"

struct script_stream {
    struct net_stream stream; /* first: what the vtable's calls get */

    /* What the other side says, and how it ends: 0 end of stream, else the errno (EAGAIN: it says nothing more). */
    const uint8_t *in;
    size_t in_len;
    int in_end;

    /* What was written, up to out_max bytes, at which writing fails with out_end (EAGAIN: it takes no more). */
    uint8_t *out;
    size_t out_len, out_max;
    int out_end;

    size_t piece; /* bytes that one call moves at most; 0: no bound */

    size_t in_at;
    unsigned reads, writes, waits;
    bool shut, closed, more; /* more: of the last write */
};

/* in is the test's own; out is freed by close. */
void script_stream_init(struct script_stream *s, const void *in, size_t in_len, size_t out_max);

#endif
