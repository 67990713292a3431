#include "fake_rails.h"

#include <string.h>

#include "base/error.h"

struct penstock_qp_identity fake_rails_identity(size_t i, bool client)
{
    static const struct penstock_qp_identity clients[2] = {
        { .qpn = 0x11223344, .psn = 0x00AABBCC },
        { .qpn = 0x55667788, .psn = 0x00DDEEFF },
    };
    struct penstock_qp_identity qp = { .qpn = 0x01020304 + (uint32_t)i, .psn = 0x00050607 };
    if (client && i < 2)
        qp = clients[i];
    for (size_t b = 0; b < sizeof qp.gid; b++)
        qp.gid[b] = (uint8_t)((client ? 0x60 : 0xA0) + 0x10 * i + b);
    return qp;
}

void fake_rails_init(struct fake_rails *rails, size_t n_regions)
{
    memset(rails, 0, sizeof *rails);
    rails->n_regions = n_regions;
    for (size_t i = 0; i < PENSTOCK_RAILS_MAX; i++)
        for (size_t l = 0; l < FAKE_REGIONS_MAX; l++)
            rails->regions[i][l] =
                (struct penstock_layer){ .base = UINT64_C(0x1122334455667788) + l, .rkey = (uint32_t)(0xE0 + i) };
}

static int fake_choose(void *set, const struct penstock_rail_choice *wishes, size_t n,
                       struct penstock_rail_choice *granted, struct penstock_error *error)
{
    struct fake_rails *rails = set;
    rails->chosen++;
    if (rails->choose_code)
        return base_error_set(error, rails->choose_code, "no such rail");
    for (size_t i = 0; i < n; i++) {
        granted[i] = wishes[i];
        granted[i].path_mtu = wishes[i].path_mtu < 4 ? wishes[i].path_mtu : 4;
        if (wishes[i].peer_rail == PENSTOCK_PEER_RAIL_ANY)
            granted[i].peer_rail = (uint8_t)(7 - i);
    }
    return 0;
}

static int fake_prepare(void *set, size_t n, struct net_rail *mine, struct penstock_error *error)
{
    struct fake_rails *rails = set;
    rails->prepared++;
    rails->n = n;
    if (rails->prepare_code)
        return base_error_set(error, rails->prepare_code, "above the memory cap");
    for (size_t i = 0; i < n; i++)
        mine[i] = (struct net_rail){ .qp = fake_rails_identity(i, rails->n_regions == 0),
                                     .n_regions = (uint32_t)rails->n_regions,
                                     .regions = rails->n_regions ? rails->regions[i % PENSTOCK_RAILS_MAX] : NULL };
    return 0;
}

static int fake_check(void *set, size_t n, const struct net_rail *theirs, struct penstock_error *error)
{
    struct fake_rails *rails = set;
    (void)theirs;
    rails->checked += n == rails->n;
    return rails->check_code ? base_error_set(error, rails->check_code, "region 1 wraps") : 0;
}

static int fake_complete(void *set, size_t n, const struct net_rail *theirs, const struct penstock_rail_choice *agreed,
                         struct penstock_error *error)
{
    struct fake_rails *rails = set;
    rails->completed++;
    if (rails->complete_code)
        return base_error_set(error, rails->complete_code, "QP to RTR");
    rails->agreed = agreed != NULL;
    for (size_t i = 0; i < n; i++) {
        rails->theirs[i] = theirs[i].qp;
        rails->n_their_regions = theirs[i].n_regions;
        if (i < PENSTOCK_RAILS_MAX && theirs[i].n_regions)
            memcpy(rails->their_regions[i], theirs[i].regions, theirs[i].n_regions * sizeof *theirs[i].regions);
        if (agreed)
            rails->choice[i] = agreed[i];
    }
    return 0;
}

const struct net_rail_ops fake_rails_ops = {
    .choose = fake_choose, .prepare = fake_prepare, .check = fake_check, .complete = fake_complete
};
