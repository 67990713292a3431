/* From wishes and the ports that there are to rails: which device, port and GID each uses, and why. */
#ifndef PENSTOCK_RAIL_PORTS_H
#define PENSTOCK_RAIL_PORTS_H

#include "rail/wish.h"

struct rail_port {
    char device[VERBS_NAME_MAX];
    uint8_t port;
    uint32_t gid_index;
    uint8_t gid[16];
    uint8_t mtu; /* ibv_mtu */
    double gbps;
    uint8_t reads_out, reads_in; /* 1..128: what its QPs can have outstanding, and take */
    uint32_t work_requests_max, sges_max;
    uint64_t mr_bytes_max;
    uint32_t message_bytes_max; /* 0: not known */
    uint8_t peer_rail;          /* wished for; PENSTOCK_PEER_RAIL_ANY */
    char why[160];              /* "RoCE v2, IPv4 10.0.0.2: the first routable of 6 GIDs" */
};

#define RAIL_LEFT_OUT_MAX 480

struct rail_chosen {
    struct rail_port at[PENSTOCK_RAILS_MAX];
    size_t n;
    char left_out[RAIL_LEFT_OUT_MAX]; /* "mlx5_1 port 1 is DOWN (...); ...": ports that are none, and why; cut */
};

/* Of each port the best GID: RoCE v2 IPv4-mapped and routable, then RoCE v2 IPv6 global, link-local only where there is
 * nothing better, RoCE v1 last. InfiniBand ports are none: the protocol carries no LIDs. A port with link-local GIDs
 * alone is left out where another has better, unless it was named. Never more than PENSTOCK_RAILS_MAX.
 *
 * ENOTFOUND: no port can be a rail, with the reason for each (no device, DOWN, no GID), or one that was named cannot.
 * EUNSUPPORTED: "none". */
PENSTOCK_CHECKED int rail_ports_choose(const struct verbs_ports *ports, const struct rail_wishes *wishes,
                                       struct rail_chosen *out, struct penstock_error *error);

/* What it says of its READs where both ends agree on them (protocol 2.7): those it can have outstanding and take. */
uint8_t rail_port_reads(const struct rail_port *port);

/* "mlx5_0 port 1, GID 3 ::ffff:10.0.0.2, MTU 4096, 200 Gb/s (RoCE v2, ...)", why at its end. Returns the length, cut to
 * size. */
size_t rail_port_format(const struct rail_port *port, char *out, size_t size);

/* The ports with their devices open: what a process has for all its connections. */
struct rail_devices {
    struct verbs_world *world; /* owned where open made it */
    size_t n;
    struct rail_port ports[PENSTOCK_RAILS_MAX];
    struct verbs_device *devices[PENSTOCK_RAILS_MAX]; /* of rail i; two rails may share one */
    bool world_is_ours;
    char left_out[RAIL_LEFT_OUT_MAX]; /* as of struct rail_chosen, with devices that could not be opened */
};

/* world NULL: libibverbs. EUNSUPPORTED or ENOTFOUND with the reason why there is no RDMA (TCP goes on). *out is
 * then empty. A world that is given outlives it. */
PENSTOCK_CHECKED int rail_devices_open(struct verbs_world *world, const struct rail_wishes *wishes,
                                       struct rail_devices *out, struct penstock_error *error);
void rail_devices_close(struct rail_devices *devices);

#endif
