/* The cache tier's state (protocol 1.6): arenas that all its connections share, over the swap. */
#ifndef PENSTOCK_PEER_CACHE_CACHE_H
#define PENSTOCK_PEER_CACHE_CACHE_H

#include <pthread.h>
#include <stdbool.h>

#include <penstock/error.h>

#include "residency/cache.h"
#include "residency/swap/swap.h"

struct peer_server;

/* Zeroed: not there. */
struct peer_cache {
    struct residency_cache *residency;
    struct residency_swap *swap; /* NULL: none */
    bool keep;

    pthread_t sweeper; /* drops what is past its time, and gives idle arenas back */
    bool sweeping;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
};

/* Opens the swap as the operator asked, and logs what it came to. After a failure peer_cache_close takes back what
 * was made. */
PENSTOCK_CHECKED int peer_cache_open(struct peer_server *server, struct penstock_error *error);

/* Where the swap is kept: puts what is in memory on disk, but for what connections have pinned. Waits for the disk. */
void peer_cache_spill(struct peer_cache *cache);

/* There are no connections any more. Puts what is in memory on disk first, where the swap is kept. */
void peer_cache_close(struct peer_cache *cache);

#endif
