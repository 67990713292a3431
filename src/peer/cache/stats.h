/* The cache's statistics (protocol 2.6). */
#ifndef PENSTOCK_PEER_CACHE_STATS_H
#define PENSTOCK_PEER_CACHE_STATS_H

#include "base/vec.h"
#include "peer/server.h"

/* Appends the JSON. ENOMEM. */
PENSTOCK_CHECKED int peer_cache_stats_write(struct peer_server *server, struct base_buf *json,
                                            struct penstock_error *error);

#endif
