/* What a user says about rails: --rail, repeatable, and PENSTOCK_RAILS, the same separated by commas. */
#ifndef PENSTOCK_RAIL_WISH_H
#define PENSTOCK_RAIL_WISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>
#include <penstock/wire.h>

#include "verbs/verbs.h"

struct rail_wish {
    char device[VERBS_NAME_MAX];
    bool by_index, by_gid; /* the GID, where it was named: by its index in the port's table, or as an address */
    uint32_t gid_index;
    uint8_t gid[16];
    uint8_t peer_rail; /* "@N"; PENSTOCK_PEER_RAIL_ANY: none was named */
};

/* Zeroed: every ACTIVE port, PENSTOCK_RAILS_MAX at most. */
struct rail_wishes {
    bool none;      /* "none": no RDMA */
    bool automatic; /* "auto" was said; as nothing at all, but that it stands alone */
    size_t limit;   /* "auto:N"; 0: PENSTOCK_RAILS_MAX */
    struct rail_wish named[PENSTOCK_RAILS_MAX];
    size_t n_named; /* 0: choose by yourself */
};

/* Takes one more "DEVICE[:GID][@PEER_RAIL]", "auto", "auto:N" or "none", or several with commas between them. GID is an
 * index, an IPv6 address, 32 hex digits, or an IPv4 address for its mapped form. at_peer: there is no "@N". EINVAL says
 * what is wrong with which part, and leaves wishes as they were. */
PENSTOCK_CHECKED int rail_wishes_add(struct rail_wishes *wishes, const char *text, bool at_peer,
                                     struct penstock_error *error);

#endif
