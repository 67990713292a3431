/* What is served, one tier each: the daemon listens, counts, drains and watches for all of them alike. */
#ifndef PENSTOCK_PEER_SERVICE_H
#define PENSTOCK_PEER_SERVICE_H

#include "connection.h"

struct peer_service {
    const char *name; /* "weights": in the log */
    const char *default_address;
    uint16_t default_port;
    /* Whether the operator asked for it. What follows is called only then. */
    bool (*wanted)(const struct peer_options *options);
    /* Stages what it serves, before anyone is listened to. What it put into the server, the server takes back. */
    int (*open)(struct peer_server *server, struct penstock_error *error);
    /* One connection, from the first byte to the last, on its own thread. What it holds beyond peer_connection_use it
     * gives back itself. */
    enum peer_end (*serve)(struct peer_connection *connection);
    /* The same for one above the limit: says so where the client can read words. */
    enum peer_end (*refuse)(struct peer_connection *connection);
};

extern const struct peer_service peer_weights_service, peer_experts_service, peer_cache_service;

/* By tier. */
extern const struct peer_service *const peer_services[PEER_TIERS];

#endif
