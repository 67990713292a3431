/* The daemon's rails: opened at start, watched, and registered on. */
#ifndef PENSTOCK_PEER_RAILS_H
#define PENSTOCK_PEER_RAILS_H

#include "server.h"

/* Finds the rails that the operator asked for, or all, and logs which and why. Without any, TCP is what there is, and
 * one line says why; only where a rail was asked for by name is that an error. */
PENSTOCK_CHECKED int peer_rails_open(struct peer_server *server, struct penstock_error *error);
/* Nothing is registered any more. */
void peer_rails_close(struct peer_server *server);

/* Logs what the devices have to tell: a port that went down, a device that is gone. */
void peer_rails_watch(struct peer_server *server);

/* Registers all that is staged, on a thread of its own: TCP clients are served meanwhile, and RDMA clients wait
 * for what they want. */
void peer_rails_register(struct peer_server *server);
/* The end of that: once the peer drains it stops at the next file. False: it has not by then. */
bool peer_rails_registered(struct peer_server *server, int64_t timeout_ns);

#endif
