/* The sockets that a peer listens on, and the thread that accepts. */
#ifndef PENSTOCK_PEER_LISTEN_H
#define PENSTOCK_PEER_LISTEN_H

#include "service.h"

#define PEER_LISTENERS_MAX 32

struct peer_listeners {
    struct peer_server *server;
    pthread_t thread;
    int wake[2]; /* a pipe: its reading end is polled, and closing the other stops the thread */
    int fds[PEER_LISTENERS_MAX];
    const struct peer_service *services[PEER_LISTENERS_MAX]; /* of each */
    size_t n;
};

/* Opens every address that every name stands for, of every service that is wanted. The error names the one that could
 * not be listened on. */
PENSTOCK_CHECKED int peer_listeners_open(struct peer_listeners *listeners, struct peer_server *server,
                                         struct penstock_error *error);
/* "listening for weights on 127.0.0.1:9910", one line an address, and starts to accept. */
PENSTOCK_CHECKED int peer_listeners_start(struct peer_listeners *listeners, struct penstock_error *error);
/* Accepts no more, and closes the sockets. */
void peer_listeners_stop(struct peer_listeners *listeners);
/* For listeners that were never started. */
void peer_listeners_close(struct peer_listeners *listeners);

#endif
