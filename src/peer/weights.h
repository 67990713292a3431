/* The weight tier (protocol 1.5, 2.1, 2.4, 2.5), the peer's side. */
#ifndef PENSTOCK_PEER_WEIGHTS_H
#define PENSTOCK_PEER_WEIGHTS_H

#include "connection.h"

/* How a connection is to be closed. */
enum peer_end {
    PEER_END_CLOSE,  /* at once: the client is gone, or what it got is worth nothing any more */
    PEER_END_LINGER, /* so that it does not lose its last answer to a reset */
};

/* From the model request to the end. *model: the reference that the connection holds, NULL where it came to none. */
enum peer_end peer_weights_serve(struct peer_connection *connection, struct peer_model **model);

/* The same for a connection above the limit: reads its request, and says so where the client can read words. */
enum peer_end peer_weights_refuse(struct peer_connection *connection);

#endif
