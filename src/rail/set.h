/* The QPs of one connection, at either end: what the rail handshake (net/handshake.h) drives through rail_set_ops. Each
 * rail is one QP with a CQ of its own (protocol 1.3). One thread at a time. */
#ifndef PENSTOCK_RAIL_SET_H
#define PENSTOCK_RAIL_SET_H

#include "net/handshake.h"
#include "rail/ports.h"

/* One connected rail. */
struct rail {
    struct verbs_cq *cq;
    struct verbs_qp *qp; /* NULL: none, or given away */
    uint32_t psn;
    uint8_t own;       /* which of rail_devices */
    uint8_t peer_rail; /* which of the peer's, where that was agreed on; else its position */
    uint8_t mtu, reads_out;
    uint32_t depth, sges_max; /* of its send queue: what was asked for, cut to what the port has */
    /* At a client: the peer's regions. */
    struct penstock_layer *regions;
    size_t n_regions;
};

/* What a peer publishes on rails of one device. */
struct rail_table {
    const struct penstock_layer *regions;
    size_t n_regions;
};

/* What it points to outlives the set. */
struct rail_set_config {
    const struct rail_devices *devices;
    struct verbs_pd *const *pds; /* one for each of devices: where its QPs belong */
    bool at_peer;
    /* The client: which of devices rail i of the connection uses (rail/pair.h); NULL: the i-th. A peer's are chosen. */
    const uint8_t *own;
    unsigned access;                 /* what the other side may do: 0 at a client, REMOTE_READ at a read-only peer */
    uint32_t depth, sges_max;        /* of the send queues, at most; a client's: RAIL_DEPTH and RAIL_SGES (engine.h); a
                                        peer's are as short as they can be */
    const struct rail_table *tables; /* the peer: one for each of devices, NULL at a client */
    /* The client: lengths of the peer's regions by the manifest, n_expected of them, for the check of its tables; may
     * be NULL. The number is the handshake's to check. */
    const uint64_t *expected_bytes;
    size_t n_expected;
};

struct rail_set {
    struct rail_set_config config; /* copied */
    size_t n;                      /* rails prepared; 0 again after a failure */
    bool chosen;                   /* a peer's: rails[i].own is as the client wished */
    size_t failed;                 /* the rail that could not be prepared or connected; PENSTOCK_RAILS_MAX: none */
    struct rail rails[PENSTOCK_RAILS_MAX];
};

extern const struct net_rail_ops rail_set_ops; /* a context of struct rail_set * */

void rail_set_init(struct rail_set *set, const struct rail_set_config *config);

/* Destroys what is left: QPs first. When it returns the other side can reach nothing through this set any more. */
void rail_set_fini(struct rail_set *set);

/* Frees one rail: QP, CQ, tables. */
void rail_fini(struct rail *rail);

#endif
