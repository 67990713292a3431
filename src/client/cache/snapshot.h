/* Snapshots from inside. */
#ifndef PENSTOCK_CLIENT_CACHE_SNAPSHOT_H
#define PENSTOCK_CLIENT_CACHE_SNAPSHOT_H

#include <penstock/snapshot.h>

#include "cache.h"

/* world NULL: libibverbs. */
PENSTOCK_CHECKED int client_snapshots_start(struct verbs_world *world, const char *peer,
                                            const struct penstock_snapshot_arena *arena,
                                            const struct penstock_options *options, struct penstock_session **session,
                                            penstock_op *op, struct penstock_error *error);
/* Over a stream: the session owns it from then on, whatever happens. */
PENSTOCK_CHECKED int client_snapshots_on_stream(struct net_stream *stream, const struct penstock_snapshot_arena *arena,
                                                const struct penstock_options *options,
                                                struct penstock_session **session, penstock_op *op,
                                                struct penstock_error *error);

#endif
