/* The cache's TCP data plane (protocol 2.2), the peer's side. */
#ifndef PENSTOCK_PEER_CACHE_TCP_H
#define PENSTOCK_PEER_CACHE_TCP_H

#include "cache.h"
#include "peer/connection.h"

/* From behind the handshake to the end. blob_bytes 0: raw mode. The client of the residency stays the caller's. */
enum peer_end peer_cache_tcp_serve(struct peer_connection *connection, struct residency_client *client,
                                   uint64_t blob_bytes);

#endif
