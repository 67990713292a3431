/* What the daemon's threads share. */
#ifndef PENSTOCK_PEER_SERVER_H
#define PENSTOCK_PEER_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "complain.h"
#include "experts.h"
#include "models.h"
#include "net/address.h"
#include "net/stream.h"
#include "peer.h"
#include "peer/cache/cache.h"
#include "worker.h"

/* Deadlines of protocol 2, each without a byte of progress. */
struct peer_deadlines {
    int64_t first_byte_ns; /* 10 s */
    int64_t message_ns;    /* 30 s: inside a started message, and for a client to take bytes */
    int64_t mode_ns;       /* 300 s: clients allocate before the mode byte */
    int64_t linger_ns;     /* 5 s: for a refused client to read its last answer */
};

/* Connections above the limit that are told so in words rather than just closed. */
#define PEER_REFUSALS_MAX 16

struct peer_server {
    const struct peer_options *options;
    struct peer_deadlines deadlines;
    struct residency_ledger ledger;
    struct rail_devices rails; /* n 0: there is no RDMA, for that reason */
    char no_rdma[400];
    struct peer_registrar registrar;
    pthread_t registering; /* what is staged at start */
    bool is_registering;   /* the main thread's: it has not been joined */
    struct peer_live live;
    struct peer_models models;
    struct peer_experts experts;
    struct peer_cache cache;
    struct peer_worker worker;
    struct peer_complaints complaints;
    _Atomic bool draining; /* set once, before the connections are walked */

    /* A leaf: nothing is locked with it held. */
    pthread_mutex_t lock;
    pthread_cond_t gone;          /* a connection ended, or registering did */
    bool registered;              /* what was staged at start: registering is about to end */
    struct base_list connections; /* of every thread, refusals too */
    size_t n_serving, n_refusing;
};

#endif
