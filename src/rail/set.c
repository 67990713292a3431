#include "rail/set.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/rng.h"

/* What the frozen handshake has a client send, and so what a responder must be able to take (protocol 1.3). */
#define FROZEN_READS 16

#define PSN_MASK UINT32_C(0xFFFFFF)

static uint8_t smaller(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

static const struct rail_port *port_of(const struct rail_set *set, size_t i)
{
    return &set->config.devices->ports[set->rails[i].own];
}

/* "rail 1 (mlx5_0 port 1)": where an error was. */
static int in_rail(const struct rail_set *set, size_t i, int code, struct penstock_error *error)
{
    base_error_in(error, "rail %zu (%s port %u)", i, port_of(set, i)->device, port_of(set, i)->port);
    return code;
}

/* ---- choosing, at the peer (protocol 2.7) ---- */

static int reserve(struct rail_set *set, const struct penstock_rail_choice *wishes, size_t n, bool *taken,
                   struct penstock_error *error)
{
    size_t have = set->config.devices->n;
    for (size_t i = 0; i < n; i++) {
        uint8_t rail = wishes[i].peer_rail;
        if (rail == PENSTOCK_PEER_RAIL_ANY)
            continue;
        if (rail >= have)
            return base_error_set(error, PENSTOCK_ENOTFOUND, "wants rail %u, and %zu are here (0 to %zu)", rail, have,
                                  have - 1);
        if (taken[rail])
            return base_error_set(error, PENSTOCK_EINVAL, "wants rail %u twice", rail);
        taken[rail] = true;
    }
    return 0;
}

static int set_choose(void *rails, const struct penstock_rail_choice *wishes, size_t n,
                      struct penstock_rail_choice *granted, struct penstock_error *error)
{
    struct rail_set *set = rails;
    bool taken[PENSTOCK_RAILS_MAX] = { false };
    size_t free_rail = 0;
    if (n > set->config.devices->n)
        return base_error_set(error, PENSTOCK_ELIMIT, "wants %zu rails, and %zu are here", n, set->config.devices->n);
    int code = reserve(set, wishes, n, taken, error);
    if (code)
        return code;
    for (size_t i = 0; i < n; i++) {
        uint8_t rail = wishes[i].peer_rail;
        if (rail == PENSTOCK_PEER_RAIL_ANY) { /* there is one: n are not more than there are */
            while (taken[free_rail])
                free_rail++;
            taken[free_rail] = true;
            rail = (uint8_t)free_rail;
        }
        const struct rail_port *port = &set->config.devices->ports[rail];
        granted[i] = (struct penstock_rail_choice){ .peer_rail = rail,
                                                    .path_mtu = smaller(wishes[i].path_mtu, port->mtu),
                                                    .rd_atomic = smaller(wishes[i].rd_atomic, rail_port_reads(port)) };
        set->rails[i].own = rail;
    }
    set->chosen = true;
    return 0;
}

/* ---- making the QPs ---- */

static int prepare_rail(struct rail_set *set, size_t i, struct penstock_error *error)
{
    const struct rail_set_config *c = &set->config;
    struct rail *rail = &set->rails[i];
    const struct rail_port *port = port_of(set, i);
    rail->depth = c->depth < port->work_requests_max ? c->depth : port->work_requests_max;
    rail->sges_max = c->sges_max < port->sges_max ? c->sges_max : port->sges_max;
    const struct verbs_qp_options options = { .port = port->port,
                                              .gid_index = port->gid_index,
                                              .access = c->access,
                                              .depth = rail->depth,
                                              .sges_max = rail->sges_max };
    int code = base_random(&rail->psn, sizeof rail->psn);
    rail->psn &= PSN_MASK;
    if (code)
        return base_error_set(error, code, "no random PSN");
    code = verbs_cq_new(c->devices->devices[rail->own], rail->depth, &rail->cq, error);
    return code ? code : verbs_qp_new(c->pds[rail->own], rail->cq, &options, &rail->qp, error);
}

static struct net_rail own_end(const struct rail_set *set, size_t i)
{
    const struct rail *rail = &set->rails[i];
    const struct rail_table *table = set->config.tables ? &set->config.tables[rail->own] : NULL;
    struct net_rail end = { .qp = { .qpn = rail->qp->qpn, .psn = rail->psn } };
    memcpy(end.qp.gid, port_of(set, i)->gid, sizeof end.qp.gid);
    if (table) {
        end.n_regions = (uint32_t)table->n_regions;
        end.regions = table->regions;
    }
    return end;
}

static void drop_rails(struct rail_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        rail_fini(&set->rails[i]);
    set->n = 0;
}

/* It is this rail that costs the connection. */
static int rail_lost(struct rail_set *set, size_t i, int code, struct penstock_error *error)
{
    set->failed = i;
    return in_rail(set, i, code, error);
}

static int set_prepare(void *rails, size_t n, struct net_rail *mine, struct penstock_error *error)
{
    struct rail_set *set = rails;
    const struct rail_set_config *c = &set->config;
    if (n == 0 || n > c->devices->n)
        return base_error_set(error, PENSTOCK_ELIMIT, "%zu rails are wanted, and %zu are here", n, c->devices->n);
    int code = 0;
    for (size_t i = 0; code == 0 && i < n; i++) {
        if (!set->chosen)
            set->rails[i].own = c->own ? c->own[i] : (uint8_t)i;
        set->n = i + 1; /* what there is of it is dropped with the others */
        code = prepare_rail(set, i, error);
        if (code)
            code = rail_lost(set, i, code, error);
        else
            mine[i] = own_end(set, i);
    }
    if (code)
        drop_rails(set);
    return code;
}

/* ---- the other side's ends ---- */

/* Nothing that is read or written through a rail may lie outside what the peer published, and no address may wrap. */
static int check_regions(const struct rail_set_config *c, const struct net_rail *theirs, struct penstock_error *error)
{
    if (theirs->n_regions != c->n_expected)
        return base_error_set(error, PENSTOCK_EPROTO, "published %u regions where the manifest has %zu",
                              theirs->n_regions, c->n_expected);
    for (size_t i = 0; i < c->n_expected; i++) {
        uint64_t end;
        if (!base_add_u64(theirs->regions[i].base, c->expected_bytes[i], &end))
            return base_error_set(
                error, PENSTOCK_EPROTO, "published region %zu at 0x%llx, where its %llu bytes do not fit below 2^64", i,
                (unsigned long long)theirs->regions[i].base, (unsigned long long)c->expected_bytes[i]);
    }
    return 0;
}

static int set_check(void *rails, size_t n, const struct net_rail *theirs, struct penstock_error *error)
{
    struct rail_set *set = rails;
    int code = 0;
    for (size_t i = 0; code == 0 && i < n && set->config.expected_bytes; i++) {
        code = check_regions(&set->config, &theirs[i], error);
        if (code)
            code = in_rail(set, i, code, error);
    }
    return code;
}

/* The handshake's go with it. */
static int keep_regions(struct rail *rail, const struct net_rail *theirs, struct penstock_error *error)
{
    if (theirs->n_regions == 0)
        return 0;
    rail->regions = malloc(theirs->n_regions * sizeof *rail->regions); /* 4096 at most */
    if (!rail->regions)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %u regions", theirs->n_regions);
    memcpy(rail->regions, theirs->regions, theirs->n_regions * sizeof *rail->regions);
    rail->n_regions = theirs->n_regions;
    return 0;
}

/* Agreed values are no more than either end's own, unless the other side does not keep to the protocol. */
static struct verbs_qp_link link_to(const struct rail *rail, const struct rail_port *port,
                                    const struct penstock_qp_identity *peer, const struct penstock_rail_choice *agreed)
{
    struct verbs_qp_link link = { .own_psn = rail->psn, .peer_psn = peer->psn & PSN_MASK, .peer_qpn = peer->qpn };
    uint8_t want = agreed ? agreed->rd_atomic : FROZEN_READS;
    memcpy(link.peer_gid, peer->gid, sizeof link.peer_gid);
    link.mtu = agreed ? smaller(agreed->path_mtu, port->mtu) : port->mtu;
    link.reads_out = smaller(want, port->reads_out);
    link.reads_in = smaller(want, port->reads_in);
    return link;
}

static int complete_rail(struct rail_set *set, size_t i, const struct net_rail *theirs,
                         const struct penstock_rail_choice *agreed, struct penstock_error *error)
{
    struct rail *rail = &set->rails[i];
    const struct rail_port *port = port_of(set, i);
    if (set->config.at_peer && !agreed && port->reads_in < FROZEN_READS)
        return base_error_set(
            error, PENSTOCK_EUNSUPPORTED,
            "the device takes %u READs at once, and the client will send %d: only a client that agrees "
            "on fewer can be served here",
            port->reads_in, FROZEN_READS);
    int code = keep_regions(rail, theirs, error);
    if (code)
        return code;
    const struct verbs_qp_link link = link_to(rail, port, &theirs->qp, agreed);
    rail->peer_rail = set->config.at_peer || !agreed ? (uint8_t)i : agreed->peer_rail;
    rail->mtu = link.mtu;
    rail->reads_out = link.reads_out;
    return verbs_qp_connect(rail->qp, &link, error);
}

static int set_complete(void *rails, size_t n, const struct net_rail *theirs, const struct penstock_rail_choice *agreed,
                        struct penstock_error *error)
{
    struct rail_set *set = rails;
    int code = n == set->n
                   ? 0
                   : base_error_set(error, PENSTOCK_EINVAL, "%zu rails to connect, and %zu are prepared", n, set->n);
    for (size_t i = 0; code == 0 && i < n; i++) {
        code = complete_rail(set, i, &theirs[i], agreed ? &agreed[i] : NULL, error);
        if (code)
            code = rail_lost(set, i, code, error);
    }
    if (code)
        drop_rails(set);
    return code;
}

const struct net_rail_ops rail_set_ops = {
    .choose = set_choose, .prepare = set_prepare, .check = set_check, .complete = set_complete
};

/* ---- its life ---- */

void rail_set_init(struct rail_set *set, const struct rail_set_config *config)
{
    *set = (struct rail_set){ .config = *config, .failed = PENSTOCK_RAILS_MAX };
}

void rail_fini(struct rail *rail)
{
    verbs_qp_free(rail->qp);
    verbs_cq_free(rail->cq);
    free(rail->regions);
    *rail = (struct rail){ 0 };
}

void rail_set_fini(struct rail_set *set)
{
    drop_rails(set);
}
