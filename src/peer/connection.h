/* One client's connection, and the thread that alone owns it. What it says is its service's. */
#ifndef PENSTOCK_PEER_CONNECTION_H
#define PENSTOCK_PEER_CONNECTION_H

#include "server.h"

struct peer_service;

struct peer_connection {
    struct base_list node; /* in server->connections */
    struct peer_server *server;
    struct net_stream stream;
    const struct peer_service *service;
    struct peer_served *served; /* NULL: nothing yet. Under server->lock: the watch looks for it. A reference */
    _Atomic bool waiting;       /* for bytes, between messages: a drain may end it at once */
    bool over_limit;            /* is only here to be told that there are too many */
    bool has_rails;             /* under server->lock: its client reads by RDMA, and a drain waits for it */
    _Atomic bool holding;       /* its client may be reading or writing a cache's slots: a drain waits for this one */
    char client[NET_ADDRESS_TEXT_MAX];
};

/* How a connection is to be closed. */
enum peer_end {
    PEER_END_CLOSE,  /* at once: the client is gone, or what it got is worth nothing any more */
    PEER_END_LINGER, /* so that it does not lose its last answer to a reset */
};

/* Takes fd over, and starts a thread for it, or closes it. */
void peer_connection_start(struct peer_server *server, const struct peer_service *service, int fd,
                           const struct net_address *client);

/* Shuts down the connections that wait for a request (idle), those that use something served, or all. From any thread.
 * Idle ones of a host that has a connection with rails are left: digests and files travel over TCP beside its rails. */
void peer_connections_end_idle(struct peer_server *server);
void peer_connections_end_served(struct peer_server *server, const struct peer_served *served);
void peer_connections_end_all(struct peer_server *server);

/* ---- for the service, on the connection's own thread ---- */

/* Until there is something to read, or the end of the stream. ETIMEOUT, or ECLOSED where the peer is draining. */
PENSTOCK_CHECKED int peer_connection_wait(struct peer_connection *connection, int64_t timeout_ns,
                                          struct penstock_error *error);

/* Some bytes, at once where the last batch left a part of a request, else whenever a request comes. 0: the end. */
PENSTOCK_CHECKED int peer_connection_read_some(struct peer_connection *connection, void *to, size_t len, bool inside,
                                               size_t *got, struct penstock_error *error);

/* From here on every read is bounded by the socket itself, so that one inside a message is one system call. */
void peer_connection_time_reads(struct peer_connection *connection);

/* read_some into several pieces. time_reads was called. */
PENSTOCK_CHECKED int peer_connection_readv(struct peer_connection *connection, const struct iovec *into, int n,
                                           bool inside, size_t *got, struct penstock_error *error);

/* The same inside a message of which so many bytes are still to come; waits for as many of them as are worth waking. */
PENSTOCK_CHECKED int peer_connection_readv_much(struct peer_connection *connection, const struct iovec *into, int n,
                                                uint64_t to_come_bytes, size_t *got, struct penstock_error *error);

/* The whole of len bytes, the first of which may take first_ns. *got 0: the client had closed before it. */
PENSTOCK_CHECKED int peer_connection_read_message(struct peer_connection *connection, void *to, size_t len,
                                                  int64_t first_ns, size_t *got, struct penstock_error *error);

/* Takes the caller's reference over, until the stream is closed. ESTALE: its files have just changed. */
PENSTOCK_CHECKED int peer_connection_use(struct peer_connection *connection, struct peer_served *served,
                                         struct penstock_error *error);

/* Logs how it ended, and says how to close it: what a client that ends between two messages does is no news; inside one
 * it is. */
enum peer_end peer_connection_ended(struct peer_connection *connection, const char *where, bool inside,
                                    const struct penstock_error *error);

/* Its client now reads by RDMA, or no longer. */
void peer_connection_set_rails(struct peer_connection *connection, bool has_rails);

/* A warning about this client. */
__attribute__((format(printf, 2, 3))) void peer_connection_complain(struct peer_connection *connection,
                                                                    const char *format, ...);

#endif
