#include "rail/pair.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "rail/gid.h"

#define NOBODY 0xFFu

/* Between these two numbers of common bits addresses may be of one subnet, the more the likelier; above, host parts
 * only happen to be alike. */
struct prefix {
    unsigned least, most;
};

static const struct prefix ipv4 = { 96 + 16, 96 + 24 }, ipv6 = { 48, 64 };

/* Work in progress: for each own rail the peer's, as its place in their list. */
struct pairs {
    const struct rail_devices *own;
    const struct rail_listing *theirs;
    uint8_t with[PENSTOCK_RAILS_MAX];
    bool taken[PENSTOCK_RAILS_MAX];
};

static void join(struct pairs *p, size_t own, size_t theirs)
{
    p->with[own] = (uint8_t)theirs;
    p->taken[theirs] = true;
}

/* Whether packets of one kind of address can be for the other. */
static bool one_family(const struct pairs *p, size_t own, size_t theirs)
{
    return rail_gid_is_ipv4(p->own->ports[own].gid) == rail_gid_is_ipv4(p->theirs->at[theirs].gid);
}

/* 0: not on one subnet, as far as can be seen. */
static unsigned closeness(const struct pairs *p, size_t own, size_t theirs)
{
    const uint8_t *a = p->own->ports[own].gid, *b = p->theirs->at[theirs].gid;
    const struct prefix *prefix = rail_gid_is_ipv4(a) ? &ipv4 : &ipv6;
    unsigned bits = rail_gid_common_bits(a, b);
    if (!one_family(p, own, theirs) || bits < prefix->least)
        return 0;
    return bits < prefix->most ? bits : prefix->most;
}

static int join_named(struct pairs *p, struct penstock_error *error)
{
    for (size_t i = 0; i < p->own->n; i++) {
        const struct rail_port *port = &p->own->ports[i];
        size_t at = 0;
        if (port->peer_rail == PENSTOCK_PEER_RAIL_ANY)
            continue;
        while (at < p->theirs->n && p->theirs->at[at].index != port->peer_rail)
            at++;
        if (at == p->theirs->n)
            return base_error_set(error, PENSTOCK_ENOTFOUND, "rail %s@%u: the peer has no rail %u; it lists %zu",
                                  port->device, port->peer_rail, port->peer_rail, p->theirs->n);
        if (p->taken[at])
            return base_error_set(error, PENSTOCK_EINVAL, "rail %s@%u: another rail goes there already", port->device,
                                  port->peer_rail);
        join(p, i, at);
    }
    return 0;
}

/* The closest two of those that are left, again and again; of equals the first. */
static void join_subnets(struct pairs *p)
{
    for (;;) {
        size_t own = 0, theirs = 0;
        unsigned best = 0;
        for (size_t i = 0; i < p->own->n; i++)
            for (size_t j = 0; p->with[i] == NOBODY && j < p->theirs->n; j++)
                if (!p->taken[j] && closeness(p, i, j) > best)
                    best = closeness(p, own = i, theirs = j);
        if (best == 0)
            return;
        join(p, own, theirs);
    }
}

static void join_the_rest(struct pairs *p)
{
    for (size_t i = 0; i < p->own->n; i++)
        for (size_t j = 0; p->with[i] == NOBODY && j < p->theirs->n; j++)
            if (!p->taken[j] && one_family(p, i, j))
                join(p, i, j);
}

static void add(struct rail_pairing *out, const struct rail_devices *own, size_t i, uint8_t peer_rail)
{
    const struct rail_port *port = &own->ports[i];
    out->own[out->n] = (uint8_t)i;
    out->wishes[out->n++] = (struct penstock_rail_choice){ .peer_rail = peer_rail,
                                                           .path_mtu = port->mtu,
                                                           .rd_atomic = rail_port_reads(port) };
}

static int by_position(const struct rail_devices *own, struct rail_pairing *out, struct penstock_error *error)
{
    for (size_t i = 0; i < own->n; i++) {
        if (own->ports[i].peer_rail != PENSTOCK_PEER_RAIL_ANY)
            return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                                  "rail %s@%u: this peer lets nobody choose among its rails: leave out \"@%u\"",
                                  own->ports[i].device, own->ports[i].peer_rail, own->ports[i].peer_rail);
        add(out, own, i, (uint8_t)i);
    }
    return 0;
}

static int nothing_fits(const struct pairs *p, struct penstock_error *error)
{
    char ours[RAIL_GID_TEXT_MAX], theirs[RAIL_GID_TEXT_MAX];
    if (p->own->n == 0 || p->theirs->n == 0)
        return base_error_set(error, PENSTOCK_ENOTFOUND, "%s no rails", p->own->n ? "the peer lists" : "there are");
    return base_error_set(
        error, PENSTOCK_ENOTFOUND,
        "no rail of ours reaches one of the peer's: addresses of one kind (IPv4, IPv6) are needed, and "
        "ours begin with %s, the peer's with %s",
        rail_gid_format(p->own->ports[0].gid, ours), rail_gid_format(p->theirs->at[0].gid, theirs));
}

int rail_pair(const struct rail_devices *own, const struct rail_listing *theirs, struct rail_pairing *out,
              struct penstock_error *error)
{
    struct pairs p = { .own = own, .theirs = theirs };
    memset(out, 0, sizeof *out);
    if (!theirs)
        return by_position(own, out, error);
    memset(p.with, NOBODY, sizeof p.with);
    int code = join_named(&p, error);
    if (code)
        return code;
    join_subnets(&p);
    join_the_rest(&p);
    for (size_t i = 0; i < own->n; i++)
        if (p.with[i] != NOBODY)
            add(out, own, i, theirs->at[p.with[i]].index);
    return out->n ? 0 : nothing_fits(&p, error);
}

static bool is_named(const struct rail_devices *own, uint8_t peer_rail)
{
    bool named = false;
    for (size_t i = 0; i < own->n; i++)
        named = named || own->ports[i].peer_rail == peer_rail;
    return named;
}

void rail_pair_blindly(const struct rail_devices *own, struct rail_pairing *out)
{
    uint8_t next = 0;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < own->n; i++) {
        uint8_t rail = own->ports[i].peer_rail;
        while (rail == PENSTOCK_PEER_RAIL_ANY && is_named(own, next))
            next++;
        add(out, own, i, rail == PENSTOCK_PEER_RAIL_ANY ? next++ : rail);
    }
}
