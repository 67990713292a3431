/* The requests of a cache connection as they come: bytes are read in as large pieces as is right, and decoded in
 * place. */
#ifndef PENSTOCK_PEER_CACHE_STREAM_H
#define PENSTOCK_PEER_CACHE_STREAM_H

#include <penstock/wire.h>

#include "peer/connection.h"

/* Room for the longest request, and for a run of short ones with small bodies. */
#define PEER_CACHE_IN_BYTES (64u << 10)

/* From bodies of this length on little is read beside their heads: what is, has to be copied to where it belongs. */
#define PEER_CACHE_LONG_BODY_BYTES (32u << 10)
#define PEER_CACHE_HEADS_BYTES (4u << 10)

struct peer_cache_stream {
    struct peer_connection *connection;
    struct penstock_paging_framing framing; /* of what is decoded next */
    size_t read_max;
    size_t start, end;                           /* of what is not decoded yet, in `in` */
    struct penstock_key keys[PENSTOCK_KEYS_MAX]; /* of the request decoded last */
    uint8_t in[PEER_CACHE_IN_BYTES];
};

/* On the heap, and not zeroed: pages that an idle connection never needs stay untouched. NULL: no memory. */
struct peer_cache_stream *peer_cache_stream_new(struct peer_connection *connection, bool tcp, uint64_t body_bytes);

/* Waits for bytes, with nothing decoded that still lies in `in`. False: there will be none, and *end says how the
 * connection is to be closed; it has been logged. */
bool peer_cache_stream_wait(struct peer_cache_stream *stream, enum peer_end *end);

/* Takes what has come, and waits for nothing. What lies in `in` stays where it is, unless it may move. */
void peer_cache_stream_look(struct peer_cache_stream *stream, bool may_move);

/* The next request. MORE: bytes are missing. */
PENSTOCK_CHECKED enum penstock_decode peer_cache_stream_next(struct peer_cache_stream *stream,
                                                             struct penstock_paging_request *request,
                                                             struct penstock_wire_fault *fault);

/* The rest of a body, len bytes of it, with what comes behind it in `in`, where nothing is left undecoded. to NULL:
 * nowhere. */
PENSTOCK_CHECKED int peer_cache_stream_body(struct peer_cache_stream *stream, uint8_t *to, uint64_t len,
                                            struct penstock_error *error);

/* Logs why a request cannot be answered, and says how to close. */
enum peer_end peer_cache_stream_refuse(const struct peer_cache_stream *stream, const struct penstock_wire_fault *fault);

#endif
