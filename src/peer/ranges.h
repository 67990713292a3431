/* Requests for ranges of files over TCP (protocol 1.4, 2.1): read in bulk, checked once, answered in order. What they
 * look like is the tier's. */
#ifndef PENSTOCK_PEER_RANGES_H
#define PENSTOCK_PEER_RANGES_H

#include "connection.h"

#define PEER_REQUEST_BYTES_MAX 20

enum peer_request_kind {
    PEER_REQUEST_RANGE,
    PEER_REQUEST_REFUSED, /* STATUS_ERR, and the connection goes on */
    PEER_REQUEST_OTHER,   /* the tier's own */
    PEER_REQUEST_END,     /* the client wants no more */
};

/* Inside a file as it was staged, and not empty. */
struct peer_range {
    const struct peer_file *file;
    uint64_t offset, len;
};

struct peer_requests {
    size_t request_bytes; /* of each, PEER_REQUEST_BYTES_MAX at most */
    enum peer_request_kind (*parse)(const struct peer_served *served, const uint8_t *raw, struct peer_range *range);
    bool copy_warm; /* ranges are copied once the worker has warmed all of it: sooner there, for more CPU */
    /* Queues the whole answer to a request that is the tier's own. NULL: there are none. */
    int (*other)(struct peer_transfer *transfer, struct peer_connection *connection, const uint8_t *raw, bool more,
                 struct penstock_error *error);
};

/* From the first request to the end, out of connection->served. */
enum peer_end peer_requests_serve(struct peer_connection *connection, const struct peer_requests *requests);

#endif
