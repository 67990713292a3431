/* A cache peer with rails on a simulated fabric: a handful of slots, no disk, and counters of what it was asked. */
#ifndef PENSTOCK_TEST_CACHE_PEER_H
#define PENSTOCK_TEST_CACHE_PEER_H

#include "client/cache/verbs.h"
#include "verbs_peer.h"

enum { CACHE_BLOB = 8192, CACHE_SLOTS = 64, CACHE_PINS_MAX = 256 };

struct cache_slot {
    struct penstock_key key;
    bool committed;
    int reserved_by; /* an fd; 0: nobody */
    unsigned pins;
};

struct cache_peer {
    struct verbs_peer p;

    /* Before cache_peer_begin; zeroed: a peer of ours with all features. */
    bool frozen;       /* speaks section 1 alone */
    unsigned quota;    /* pins, and reservations, of a connection; 0: a quarter of the slots */
    bool no_slots;     /* refuses all that need one */
    uint64_t beyond;   /* added to each offset that it gives */
    uint32_t nonsense; /* a seed: answers nothing but that */
    uint8_t close_at;  /* an op that is answered by closing */
    atomic_bool held;  /* answers nothing while it is set, */
    uint8_t held_at;   /* from such an op on; 0: from any */

    atomic_uint asked[256];          /* by op */
    atomic_uint mget_keys, released; /* in requests of n */
    atomic_uint most_keys;           /* in one of them */
    atomic_uint most_unanswered;     /* requests that came before the answer to the first of them */
    atomic_uint errors;              /* ST_ERR sent */
    atomic_ulong control_bytes;      /* received, behind the rail handshake */
    atomic_uint raw_bytes;           /* received on a raw connection */

    pthread_mutex_t lock; /* guards the slots */
    struct cache_slot slots[CACHE_SLOTS];
};

void cache_peer_begin(struct cache_peer *c, size_t rails);
void cache_peer_end(struct cache_peer *c);
/* What is committed under a key; NULL: nothing. */
const uint8_t *cache_peer_blob(struct cache_peer *c, uint64_t key);
/* Slots that somebody has pinned or reserved. */
size_t cache_peer_in_use(struct cache_peer *c);

#endif
