/* A rail set without QPs: it hands out the identities that the protocol's transcripts name, and notes what it was told.
 */
#ifndef PENSTOCK_TEST_FAKE_RAILS_H
#define PENSTOCK_TEST_FAKE_RAILS_H

#include "net/handshake.h"

#define FAKE_REGIONS_MAX 4096

struct fake_rails {
    size_t n_regions; /* of each rail: 0 at a client */
    int choose_code, prepare_code, check_code, complete_code;

    unsigned chosen, prepared, checked, completed; /* calls */
    size_t n;
    struct penstock_layer regions[PENSTOCK_RAILS_MAX][FAKE_REGIONS_MAX];
    struct penstock_qp_identity theirs[NET_RAILS_MAX];
    struct penstock_layer their_regions[PENSTOCK_RAILS_MAX][FAKE_REGIONS_MAX];
    size_t n_their_regions;
    bool agreed;
    struct penstock_rail_choice choice[PENSTOCK_RAILS_MAX];
};

extern const struct net_rail_ops fake_rails_ops;

void fake_rails_init(struct fake_rails *rails, size_t n_regions);

/* The identity of rail i: a client's as in protocol 1.3, a peer's likewise made up. */
struct penstock_qp_identity fake_rails_identity(size_t i, bool client);

#endif
