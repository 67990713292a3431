/* Arenas that RDMA clients reach: registering them, and the read-write rail handshake (protocol 1.3). */
#ifndef PENSTOCK_PEER_CACHE_RAILS_H
#define PENSTOCK_PEER_CACHE_RAILS_H

#include "cache.h"
#include "peer/connection.h"
#include "rail/set.h"

/* One connection's. */
struct peer_cache_rails {
    struct peer_server *server;
    struct residency_client *client;
    struct rail_set set; /* rail_set_fini once the handshake went well, before the client is freed */
    size_t n;            /* rails that are up; 0: it is the TCP data plane */
};

/* On a large stack. After a failure there is nothing to give back. */
PENSTOCK_CHECKED int peer_cache_handshake(struct peer_cache_rails *rails, struct peer_connection *connection,
                                          struct residency_client *client, struct penstock_error *error);

/* Gives back what was registered for an arena, before its memory goes: residency_cache_options.unregister. */
void peer_cache_unregister(void *registration);

#endif
