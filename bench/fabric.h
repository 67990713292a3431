/* A client and a peer on the simulated fabric, connected by n rails, with the rail engine between them. */
#ifndef PENSTOCK_BENCH_FABRIC_H
#define PENSTOCK_BENCH_FABRIC_H

#include "rail/engine.h"
#include "verbs/sim/sim.h"

struct fabric_options {
    size_t n_rails;
    double gbps;              /* of each */
    uint64_t bytes;           /* of the peer's region and of the client's memory; neither is ever touched */
    uint32_t outstanding_max; /* the engine's */
    struct sim_costs costs;
};

struct fabric_end {
    struct verbs_world *host;
    struct sim_port *ports[PENSTOCK_RAILS_MAX];
    struct rail_devices devices;
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX];
    struct verbs_mr *mrs[PENSTOCK_RAILS_MAX];
    struct rail_set set;
};

struct fabric {
    struct fabric_options options;
    struct sim_fabric *sim;
    struct fabric_end client, peer;
    struct penstock_layer regions[PENSTOCK_RAILS_MAX];
    struct rail_table tables[PENSTOCK_RAILS_MAX];
    uint8_t *memory; /* out of anybody's reach */
    struct rail_memory landing;
    struct rail_engine *engine;
};

void fabric_init(struct fabric *f, const struct fabric_options *options);
void fabric_fini(struct fabric *f);

/* Reads the ranges, all of region 0, and returns what that took, in ns. While bytes move, middle is called once half of
 * them have landed; may be NULL. */
int64_t fabric_read(struct fabric *f, const struct rail_range *ranges, size_t n, void (*middle)(struct fabric *));

/* The same one range after the other, without the engine: a READ, a wait for it, a copy of what it brought. */
int64_t fabric_read_one_by_one(struct fabric *f, const struct rail_range *ranges, size_t n, double copy_bytes_per_ns);

#endif
