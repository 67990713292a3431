/* Moving bytes of files to a stream, never through a buffer of ours: sendfile for long ranges, one writev from the
 * mapping for runs of short ones, whose pages go out uncopied where that is worth it. */
#ifndef PENSTOCK_PEER_TRANSFER_H
#define PENSTOCK_PEER_TRANSFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "model/stage.h"
#include "net/stream.h"

/* An open file of a model or a store. The mapping is for writev alone: our own loads would die of a file cut short,
 * where the kernel's fail. */
struct peer_file {
    int fd;                 /* the model's */
    const uint8_t *mapping; /* MAP_SHARED, PROT_READ, the whole file; NULL for an empty one */
    uint64_t len_bytes;
    struct model_identity identity; /* which state of it was promised */
    const char *name;               /* the model's: for the log */
    _Atomic bool no_digests;        /* the worker could not hash it */
};

/* Which way is fastest (bench/README.md has the figures of bench/crossover). Ranges of an average length from
 * PEER_PAGES_MIN_BYTES on leave the mapping uncopied, shorter ones by writev, which copies; single ones that are long
 * enough by sendfile: from PEER_SENDFILE_MIN_BYTES on, and where pages cannot go uncopied already from
 * PEER_SENDFILE_OVER_WRITEV_BYTES on. Who asks to copy gets records of 1.77 MB soonest: the client's copy runs beside
 * ours and finds the bytes in the cache. */
#define PEER_PAGES_MIN_BYTES (4u << 10)
#define PEER_SENDFILE_MIN_BYTES (128u << 10)
#define PEER_SENDFILE_OVER_WRITEV_BYTES (24u << 10)

/* A whole batch of requests with a status byte before each. */
#define PEER_TRANSFER_IOVECS 512

/* The stream's fd blocks for at most its SO_SNDTIMEO at once, and a client that takes no byte in this many calls in a
 * row is dropped: SO_SNDTIMEO is the deadline divided by it. */
#define PEER_TRANSFER_STALLS 3

struct peer_transfer {
    struct net_stream *stream;
    uint64_t sent_bytes;
    bool no_sendfile, no_pages; /* found out, or the stream cannot */
    bool copy;                  /* ranges are, of whatever length: their files are in memory and in our page tables */
    bool fleeting;              /* something queued is to be copied: it may change once it has been flushed */
    int n;
    size_t queued_bytes;
    struct iovec queued[PEER_TRANSFER_IOVECS];
};

void peer_transfer_init(struct peer_transfer *transfer, struct net_stream *stream);

/* Errors of all of these: ECLOSED, the client is gone; ETIMEOUT, it takes nothing; ECORRUPT, the file is shorter than
 * it was or cannot be read. After any the connection is of no more use: part of a reply may be out. */

/* Queues bytes, which stay as they are until the next flush. */
PENSTOCK_CHECKED int peer_transfer_bytes(struct peer_transfer *transfer, const void *bytes, size_t len,
                                         struct penstock_error *error);

/* STATUS_OK and a range that lies inside the file as it was staged. more: another reply follows at once. */
PENSTOCK_CHECKED int peer_transfer_range(struct peer_transfer *transfer, const struct peer_file *file, uint64_t offset,
                                         uint64_t len, bool more, struct penstock_error *error);

PENSTOCK_CHECKED int peer_transfer_flush(struct peer_transfer *transfer, bool more, struct penstock_error *error);

#endif
