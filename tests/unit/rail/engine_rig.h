/* An engine on a simulated fabric: a client and a peer with a rail or several between them, regions at the peer, memory
 * at the client, and a record of every work request posted. */
#ifndef PENSTOCK_ENGINE_RIG_H
#define PENSTOCK_ENGINE_RIG_H

#include "../test.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "rail/engine.h"
#include "verbs/sim/sim.h"

#define RIG_REGIONS 2
#define RIG_TRANSFERS 8
#define RIG_POSTS 65536

struct rig_post {
    struct verbs_qp *qp;
    enum verbs_opcode opcode;
    bool signaled;
    uint64_t remote, len_bytes;
    uint32_t n_sges;
    struct verbs_sge sges[RAIL_SGES];
};

struct rig_options {
    size_t n_rails; /* 0: 2 */
    uint64_t region_bytes, memory_bytes;
    struct sim_options fabric;
    struct sim_port_options port; /* of all ports at both ends */
    struct rail_engine_config engine;
    uint32_t depth;    /* of the QPs; 0: RAIL_DEPTH */
    bool unregistered; /* the client's memory */
    bool unbacked;     /* neither end's memory has pages: with no_copy, for lengths */
};

struct rig {
    struct rig_options options;
    struct sim_fabric *fabric;
    struct verbs_world *client, *peer;
    struct sim_port *ports[PENSTOCK_RAILS_MAX], *peer_ports[PENSTOCK_RAILS_MAX];
    struct rail_devices devices;
    struct verbs_device *peer_devices[PENSTOCK_RAILS_MAX];
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX], *peer_pds[PENSTOCK_RAILS_MAX];
    struct verbs_mr *regions[PENSTOCK_RAILS_MAX][RIG_REGIONS];
    struct rail peer_rails[4 * PENSTOCK_RAILS_MAX]; /* the peer's ends, of rails that have gone too */
    size_t n_peer_rails;
    uint8_t *region_bytes[RIG_REGIONS];
    struct rail_memory memory;
    struct rail_engine *engine;

    struct rig_post *posts;
    size_t n_posts;
    size_t n_done[RIG_TRANSFERS]; /* by transfer->user, an index */
    int code[RIG_TRANSFERS];
    struct penstock_error error[RIG_TRANSFERS];
    size_t n_failed[PENSTOCK_RAILS_MAX];
    struct penstock_error failure[PENSTOCK_RAILS_MAX];
    bool peer_gone;
    void (*on_done)(struct rig *rig, struct rail_transfer *transfer);
};

/* Starts all over. */
void rig_begin(struct rig *rig, const struct rig_options *options);
/* Frees the engine where it is still there, then the rest; nothing may be left. */
void rig_end(struct rig *rig);

/* Connects a new rail and puts it into the slot. */
int rig_attach(struct rig *rig, size_t slot, bool probe);

/* Polls, and moves the clock on where nothing moves, until the transfer is done or the engine waits for nothing. */
void rig_run(struct rig *rig, const struct rail_transfer *transfer);
/* The same until nothing more can happen, the deadline of the engine included. */
void rig_drain(struct rig *rig);

struct rail_transfer rig_transfer(struct rig *rig, size_t index, const struct rail_range *ranges, size_t n);
void rig_submit(struct rig *rig, struct rail_transfer *transfer);
size_t rig_index(const struct rail_transfer *transfer);

/* Whether every range landed; and whether what is outside of them is untouched (0x5A). */
void rig_expect_landed(struct rig *rig, const struct rail_range *ranges, size_t n);
uint8_t rig_region_byte(uint32_t region, uint64_t offset);

/* What was posted, as "R0+0:4096 R1+10:20": region, offset, length; "{0:5,10:5}" behind it where local memory is not
 * one piece at the same offset as the remote one. */
const char *rig_posted(struct rig *rig);

#endif
