/* What follows a manifest: the transport byte, and the data plane that it asks for (protocol 1.4, 1.5). */
#ifndef PENSTOCK_PEER_TRANSPORT_H
#define PENSTOCK_PEER_TRANSPORT_H

#include "ranges.h"

/* To the end of a connection whose manifest was sent, out of connection->served. */
enum peer_end peer_transport_serve(struct peer_connection *connection, const struct peer_requests *requests);

#endif
