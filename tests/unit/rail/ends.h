/* Both ends of a rail handshake in one process, on devices of any world: a client, and a peer with memory that it
 * publishes. For tests. */
#ifndef PENSTOCK_TEST_RAIL_ENDS_H
#define PENSTOCK_TEST_RAIL_ENDS_H

#include "rail/set.h"

#define ENDS_REGIONS 3
#define ENDS_REGION_BYTES 64

struct ends_end {
    struct rail_devices devices;
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX];
    struct verbs_mr *mrs[PENSTOCK_RAILS_MAX][ENDS_REGIONS]; /* the peer's */
    struct penstock_layer regions[PENSTOCK_RAILS_MAX][ENDS_REGIONS];
    struct rail_table tables[PENSTOCK_RAILS_MAX];
    struct rail_set_config config; /* may be changed before ends_shake */
    struct rail_set set;
};

struct ends {
    enum penstock_dialect dialect;
    size_t n_regions; /* read-only ENDS_REGIONS, read-write 1 */
    struct ends_end client, peer;
    uint8_t *memory[ENDS_REGIONS]; /* the peer's: region r is filled with 0xA0 + r */
    uint64_t expected[ENDS_REGIONS];
};

/* The worlds outlive them. Rails as --rail says: "auto" for all. */
void ends_open(struct ends *ends, enum penstock_dialect dialect, struct verbs_world *client, const char *client_rails,
               struct verbs_world *peer, const char *peer_rails);
void ends_close(struct ends *ends);

struct ends_outcome {
    enum net_handshake_next client, peer; /* DONE or FAILED */
    struct penstock_error client_error, peer_error;
    size_t sent; /* bytes by the client */
};

/* New sets, and the handshake between them: n rails, chosen where there are wishes. */
struct ends_outcome ends_shake(struct ends *ends, size_t n, const struct penstock_rail_choice *wishes);
/* The same, which has to end well. */
void ends_shake_well(struct ends *ends, size_t n, const struct penstock_rail_choice *wishes);

/* One work request through the client's rail i, by what its set says of it. Waits. Returns its status. */
int ends_move(struct ends *ends, size_t i, enum verbs_opcode opcode, size_t region, void *bytes, uint32_t len_bytes);

struct verbs_qp_state ends_state(const struct ends_end *end, size_t i);

#endif
