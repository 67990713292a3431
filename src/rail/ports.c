#include "rail/ports.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "rail/gid.h"

/* ---- which GID of a port ---- */

/* Best first. */
enum rank {
    RANK_ROUTABLE_IPV4,
    RANK_ROUTABLE_IPV6,
    RANK_LOCAL_IPV4,
    RANK_LOCAL_IPV6,
    RANK_ROCE_V1,
    RANK_ROCE_V1_LOCAL,
    RANK_NONE
};

static enum rank rank(const struct verbs_gid *gid)
{
    enum rail_gid_kind kind = rail_gid_kind(gid->raw);
    bool local = kind == RAIL_GID_IPV4_LOCAL || kind == RAIL_GID_IPV6_LOCAL;
    if (kind == RAIL_GID_NONE)
        return RANK_NONE;
    if (gid->type != VERBS_GID_ROCE_V2)
        return local ? RANK_ROCE_V1_LOCAL : RANK_ROCE_V1;
    if (rail_gid_is_ipv4(gid->raw))
        return local ? RANK_LOCAL_IPV4 : RANK_ROUTABLE_IPV4;
    return local ? RANK_LOCAL_IPV6 : RANK_ROUTABLE_IPV6;
}

/* It names no network of its own: whether the other side is on the same one is anybody's guess. */
static bool is_link_local(enum rank rank)
{
    return rank == RANK_LOCAL_IPV4 || rank == RANK_LOCAL_IPV6 || rank == RANK_ROCE_V1_LOCAL;
}

/* The first of the best; NULL: none will do. */
static const struct verbs_gid *best_gid(const struct verbs_port *port)
{
    const struct verbs_gid *best = NULL;
    for (size_t i = 0; i < port->n_gids; i++)
        if (rank(&port->gids[i]) < (best ? rank(best) : RANK_NONE))
            best = &port->gids[i];
    return best;
}

static bool names_gid(const struct rail_wish *wish)
{
    return wish && (wish->by_index || wish->by_gid);
}

static bool wished_gid(const struct rail_wish *wish, const struct verbs_gid *gid)
{
    return wish->by_index ? gid->index == wish->gid_index : memcmp(gid->raw, wish->gid, sizeof gid->raw) == 0;
}

/* An address may be in the table twice, as RoCE v1 and as v2. */
static const struct verbs_gid *pick_gid(const struct verbs_port *port, const struct rail_wish *wish)
{
    const struct verbs_gid *best = NULL;
    if (!names_gid(wish))
        return best_gid(port);
    for (size_t i = 0; i < port->n_gids; i++)
        if (wished_gid(wish, &port->gids[i]) && (!best || rank(&port->gids[i]) < rank(best)))
            best = &port->gids[i];
    return best;
}

/* ---- words ---- */

static const char *type_name(const struct verbs_gid *gid)
{
    return gid->type == VERBS_GID_ROCE_V2 ? "RoCE v2" : "RoCE v1";
}

static const char *reason(enum rank rank)
{
    switch (rank) {
    case RANK_ROUTABLE_IPV4:
        return "the first routable of";
    case RANK_ROUTABLE_IPV6:
        return "no routable IPv4 among";
    case RANK_LOCAL_IPV4:
    case RANK_LOCAL_IPV6:
        return "link-local, and nothing better among";
    default:
        return "no RoCE v2 among";
    }
}

static void say_why(const struct verbs_port *port, const struct verbs_gid *gid, bool asked, char *out, size_t size)
{
    char address[RAIL_GID_TEXT_MAX], number[48];
    bool ipv4 = rail_gid_is_ipv4(gid->raw);
    const char *from = rail_gid_format(gid->raw, address) + (ipv4 ? strlen("::ffff:") : 0);
    snprintf(number, sizeof number, "%zu GID%s", port->n_gids, port->n_gids == 1 ? "" : "s");
    snprintf(out, size, "%s, %s %s: %s%s%s", type_name(gid), ipv4 ? "IPv4" : "IPv6", from,
             asked ? "as asked for" : reason(rank(gid)), asked ? "" : " ", asked ? "" : number);
}

/* Why a port can be no rail, and what to do; NULL: it can, with *gid. */
static const char *obstacle(const struct verbs_port *port, const struct rail_wish *wish, const struct verbs_gid **gid,
                            char *out, size_t size)
{
    *gid = pick_gid(port, wish);
    if (!port->ethernet)
        snprintf(out, size,
                 "is InfiniBand (the protocol names ports by GIDs alone, and InfiniBand needs LIDs: only RoCE "
                 "will do)");
    else if (!port->active)
        snprintf(out, size, "is %s (bring it up with: ip link set INTERFACE up; rdma link shows which)", port->state);
    else if (verbs_mtu_bytes(port->mtu) == 0)
        snprintf(out, size, "has an MTU that is none (%u)", port->mtu);
    else if (!*gid && (!names_gid(wish) || port->n_gids == 0))
        snprintf(out, size, "has no GID (give its network interface an address)");
    else if (!*gid)
        snprintf(out, size, "has no such GID (ibv_devinfo -v shows those that it has)");
    else
        return NULL;
    return out;
}

/* "; " between them; what does not fit is cut. */
static void append(char *list, size_t size, const char *device, unsigned port, const char *words)
{
    size_t len = strlen(list);
    snprintf(list + len, size - len, "%s%s port %u %s", len ? "; " : "", device, port, words);
}

static uint8_t reads(uint8_t device_max)
{
    return device_max == 0 ? 1 : device_max > 128 ? 128 : device_max;
}

/* 0 would be a queue that takes nothing. */
static uint32_t at_least_one(uint32_t device_max)
{
    return device_max == 0 ? 1 : device_max;
}

static void take(const struct verbs_port *port, const struct verbs_gid *gid, const struct rail_wish *wish,
                 struct rail_chosen *out)
{
    struct rail_port *rail = &out->at[out->n++];
    *rail = (struct rail_port){ .port = port->port,
                                .gid_index = gid->index,
                                .mtu = port->mtu,
                                .gbps = port->gbps,
                                .reads_out = reads(port->reads_out),
                                .reads_in = reads(port->reads_in),
                                .work_requests_max = at_least_one(port->work_requests_max),
                                .sges_max = at_least_one(port->sges_max),
                                .mr_bytes_max = port->mr_bytes_max,
                                .message_bytes_max = port->message_bytes_max,
                                .peer_rail = wish ? wish->peer_rail : PENSTOCK_PEER_RAIL_ANY };
    snprintf(rail->device, sizeof rail->device, "%s", port->device);
    memcpy(rail->gid, gid->raw, sizeof rail->gid);
    say_why(port, gid, names_gid(wish), rail->why, sizeof rail->why);
}

/* ---- every port that will do ---- */

/* The rank of the port's GID; NONE: it can be no rail. */
static enum rank port_rank(const struct verbs_port *port)
{
    const struct verbs_gid *gid;
    char why[160];
    return obstacle(port, NULL, &gid, why, sizeof why) ? RANK_NONE : rank(gid);
}

static int choose_all(const struct verbs_ports *ports, size_t limit, struct rail_chosen *out,
                      struct penstock_error *error)
{
    enum rank best = RANK_NONE;
    for (size_t i = 0; i < ports->n; i++)
        if (port_rank(&ports->at[i]) < best)
            best = port_rank(&ports->at[i]);
    for (size_t i = 0; i < ports->n; i++) {
        const struct verbs_port *port = &ports->at[i];
        const struct verbs_gid *gid;
        char why[160];
        const char *words = obstacle(port, NULL, &gid, why, sizeof why);
        if (!words && is_link_local(rank(gid)) && !is_link_local(best))
            words = "has only link-local GIDs (give its network interface an address)";
        if (!words && out->n == limit)
            words = "is one more than are wanted";
        if (words)
            append(out->left_out, sizeof out->left_out, port->device, port->port, words);
        else
            take(port, gid, NULL, out);
    }
    if (out->n > 0)
        return 0;
    return base_error_set(error, PENSTOCK_ENOTFOUND, "no RDMA port can be used: %s",
                          ports->n ? out->left_out : "there is no RDMA device (rdma link shows them)");
}

/* ---- those that were named ---- */

static bool taken(const struct rail_chosen *out, const struct verbs_port *port)
{
    for (size_t i = 0; i < out->n; i++)
        if (out->at[i].port == port->port && strcmp(out->at[i].device, port->device) == 0)
            return true;
    return false;
}

static int no_such_device(const struct verbs_ports *ports, const struct rail_wish *wish, struct penstock_error *error)
{
    char names[256] = "";
    for (size_t i = 0; i < ports->n; i++) {
        size_t len = strlen(names);
        if (i == 0 || strcmp(ports->at[i].device, ports->at[i - 1].device) != 0)
            snprintf(names + len, sizeof names - len, "%s%s", len ? ", " : "", ports->at[i].device);
    }
    return base_error_set(error, PENSTOCK_ENOTFOUND, "rail %s: no such RDMA device; there %s%s", wish->device,
                          *names ? "are: " : "is none", names);
}

/* Of two ports of one device, for a wish: one that has more than link-local GIDs, unless the GID was named; then one
 * that no rail has yet: two rails may share one. The first of equals. */
static bool is_better(const struct rail_chosen *out, const struct rail_wish *wish, const struct verbs_port *port,
                      const struct verbs_gid *gid, const struct verbs_port *than, const struct verbs_gid *than_gid)
{
    if (!names_gid(wish) && is_link_local(rank(gid)) != is_link_local(rank(than_gid)))
        return is_link_local(rank(than_gid));
    return taken(out, than) && !taken(out, port);
}

static int choose_named(const struct verbs_ports *ports, const struct rail_wish *wish, struct rail_chosen *out,
                        struct penstock_error *error)
{
    const struct verbs_port *found = NULL;
    const struct verbs_gid *found_gid = NULL;
    char reasons[320] = "";
    bool known = false;
    for (size_t i = 0; i < ports->n; i++) {
        const struct verbs_port *port = &ports->at[i];
        const struct verbs_gid *gid;
        char why[160];
        if (strcmp(port->device, wish->device) != 0)
            continue;
        known = true;
        const char *words = obstacle(port, wish, &gid, why, sizeof why);
        if (words)
            append(reasons, sizeof reasons, port->device, port->port, words);
        else if (!found || is_better(out, wish, port, gid, found, found_gid))
            found = port, found_gid = gid;
    }
    if (!known)
        return no_such_device(ports, wish, error);
    if (!found) {
        char gid[RAIL_GID_TEXT_MAX + 1] = "";
        if (wish->by_index)
            snprintf(gid, sizeof gid, ":%u", wish->gid_index);
        else if (wish->by_gid)
            gid[0] = ':', rail_gid_format(wish->gid, gid + 1);
        return base_error_set(error, PENSTOCK_ENOTFOUND, "rail %s%s: %s", wish->device, gid, reasons);
    }
    take(found, found_gid, wish, out);
    return 0;
}

int rail_ports_choose(const struct verbs_ports *ports, const struct rail_wishes *wishes, struct rail_chosen *out,
                      struct penstock_error *error)
{
    memset(out, 0, sizeof *out);
    if (wishes->none)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "RDMA is turned off (rails: none)");
    if (wishes->n_named == 0)
        return choose_all(ports, wishes->limit ? wishes->limit : PENSTOCK_RAILS_MAX, out, error);
    int code = 0;
    for (size_t i = 0; code == 0 && i < wishes->n_named; i++)
        code = choose_named(ports, &wishes->named[i], out, error);
    return code;
}

uint8_t rail_port_reads(const struct rail_port *port)
{
    return port->reads_out < port->reads_in ? port->reads_out : port->reads_in;
}

size_t rail_port_format(const struct rail_port *port, char *out, size_t size)
{
    char gid[RAIL_GID_TEXT_MAX], speed[32] = "speed not known";
    if (port->gbps > 0)
        snprintf(speed, sizeof speed, "%.4g Gb/s", port->gbps);
    int n = snprintf(out, size, "%s port %u, GID %u %s, MTU %u, %s (%s)", port->device, port->port, port->gid_index,
                     rail_gid_format(port->gid, gid), verbs_mtu_bytes(port->mtu), speed, port->why);
    size_t len = n < 0 ? 0 : (size_t)n;
    return len < size ? len : size ? size - 1 : 0;
}
