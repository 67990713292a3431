/* A peer with rails on a simulated fabric, in threads of the test: a real socket, the real rail handshake and rail set,
 * and memory that is registered as a peer's. And the client's end of it. */
#ifndef PENSTOCK_TEST_VERBS_PEER_H
#define PENSTOCK_TEST_VERBS_PEER_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/verbs.h"
#include "fake_experts.h"
#include "verbs/sim/sim.h"

/* The model of fake_manifest, with less in it. */
#define PEER_SHARD0 UINT64_C(100000)
#define PEER_SHARD1 (UINT64_C(3) << 20)

enum { PEER_REGIONS_MAX = 3 };

struct verbs_peer {
    /* Before verbs_peer_begin; zeroed: a peer of ours. */
    size_t n_rails;
    bool frozen;                                   /* knows nothing of ours: no version, no choice of rails, no TCP */
    bool lists_none;                               /* says that it has no rails */
    bool short_table;                              /* publishes a region too few */
    bool refuses_verbs;                            /* closes at MODE_VERBS */
    bool experts;                                  /* serves the store of fake_experts.h, and no model */
    void (*service)(struct verbs_peer *p, int fd); /* another one, with a region of arena_bytes that may be written */
    void *service_data;
    uint64_t arena_bytes;
    const char *tensors; /* of the manifest, behind the first: ",{...}"; NULL: none */

    /* While it runs. */
    atomic_bool changed;       /* another manifest from now on */
    atomic_uint shaken;        /* rail handshakes that went through */
    atomic_uint rails_granted; /* in the last of them */
    atomic_uint asked;         /* model requests of any kind */
    atomic_uint over_tcp;      /* requests for ranges or digests */

    struct sim_fabric *fabric;
    struct verbs_world *host, *client;
    struct sim_port *ports[PENSTOCK_RAILS_MAX]; /* the client's; the peer's are theirs[] */
    struct sim_port *theirs[PENSTOCK_RAILS_MAX];
    char name[32];

    struct rail_devices devices;
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX];
    struct verbs_mr *mrs[PENSTOCK_RAILS_MAX][PEER_REGIONS_MAX];
    struct penstock_layer layers[PENSTOCK_RAILS_MAX][PEER_REGIONS_MAX];
    struct rail_table tables[PENSTOCK_RAILS_MAX];
    uint8_t *regions[PEER_REGIONS_MAX]; /* shards, or layers' files */
    size_t n_regions;

    int listener;
    pthread_t acceptor;
    pthread_mutex_t lock; /* guards what follows */
    int fds[4096];
    pthread_t threads[4096];
    size_t n_connections;
};

/* Two hosts on one fabric, with a device a rail at each; then the peer listens. */
void verbs_peer_begin(struct verbs_peer *p, size_t rails);
/* As a peer that drains. */
void verbs_peer_stop_listening(struct verbs_peer *p);
/* Closes every connection, as a peer that dies. Its rails go with them. */
void verbs_peer_die(struct verbs_peer *p);
/* Dies, and checks that the client has left nothing behind. */
void verbs_peer_end(struct verbs_peer *p);

/* A session to it, waited for. */
struct penstock_session *verbs_open(struct verbs_peer *p, const struct penstock_options *options);
/* One that is refused: the code, and *error. */
int verbs_open_fails(struct verbs_peer *p, const struct penstock_options *options, struct penstock_error *error);

#endif
