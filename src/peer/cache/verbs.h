/* The control stream of a cache client with rails (protocol 1.6 and 2.3), the peer's side. */
#ifndef PENSTOCK_PEER_CACHE_VERBS_H
#define PENSTOCK_PEER_CACHE_VERBS_H

#include "rails.h"

/* From behind the handshake to the end; blob_bytes 0: raw mode. Destroys the QPs; the client of the residency stays
 * the caller's. */
enum peer_end peer_cache_verbs_serve(struct peer_connection *connection, struct peer_cache_rails *rails,
                                     uint64_t blob_bytes);

#endif
