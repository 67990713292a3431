/* Requests for bytes and digests (protocol 2.1): read in bulk, checked once, answered in order. */
#ifndef PENSTOCK_PEER_REQUESTS_H
#define PENSTOCK_PEER_REQUESTS_H

#include "connection.h"

enum peer_end peer_requests_serve(struct peer_connection *connection, struct peer_model *model);

#endif
