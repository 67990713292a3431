/* The rails of a peer as it lists them: "rails" of protocol 2.5 and 2.6, laid out in 2.7. */
#ifndef PENSTOCK_RAIL_LISTING_H
#define PENSTOCK_RAIL_LISTING_H

#include "rail/ports.h"
#include "json/json.h"
#include "json/write.h"

struct rail_listed {
    uint8_t index; /* by which a client asks for it; below PENSTOCK_PEER_RAIL_ANY */
    char device[VERBS_NAME_MAX];
    uint8_t gid[16];
    uint8_t mtu; /* ibv_mtu, 1..5 */
    double gbps; /* 0: not known */
};

struct rail_listing {
    struct rail_listed at[PENSTOCK_RAILS_MAX];
    size_t n;
};

/* The array alone; the key is the caller's. devices NULL, or of no rails: []. */
void rail_listing_write(struct json_writer *w, const struct rail_devices *devices);

/* Of the object that has (or has not) a member "rails": none is n = 0. Members that are not known are ignored, and so
 * are rails above PENSTOCK_RAILS_MAX. EPROTO names the rail and the field. */
PENSTOCK_CHECKED int rail_listing_read(const struct json_value *object, struct rail_listing *out,
                                       struct penstock_error *error);

#endif
