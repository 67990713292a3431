/* The tiers that are read over RDMA (protocol 1.3 read-only, 2.7), the peer's side. */
#ifndef PENSTOCK_PEER_VERBS_SERVICE_H
#define PENSTOCK_PEER_VERBS_SERVICE_H

#include "connection.h"

/* From the rail handshake to the end, out of connection->served. Once rails are up the client reads by itself: the
 * connection only stands for it, and counts as busy. Its QPs are destroyed when this returns. */
enum peer_end peer_verbs_serve(struct peer_connection *connection);

#endif
