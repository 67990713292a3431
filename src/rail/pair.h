/* Which of a peer's rails each of our own is to be connected to (protocol 2.7). */
#ifndef PENSTOCK_RAIL_PAIR_H
#define PENSTOCK_RAIL_PAIR_H

#include "rail/listing.h"
#include "rail/ports.h"

/* The rails of one connection, in its order. */
struct rail_pairing {
    size_t n;
    uint8_t own[PENSTOCK_RAILS_MAX];                        /* which of rail_devices; none twice */
    struct penstock_rail_choice wishes[PENSTOCK_RAILS_MAX]; /* for step 1: own MTU and READs */
};

/* First the peer rails that were named ("@N"), then those on the same subnet (the longest common prefix first: from /16
 * to /24 of IPv4, 48 to 64 bits of others), then by position, IPv4 never with another; no rail of the peer's twice. Own
 * rails that find none are left out.
 *
 * theirs NULL: a peer that lets nobody choose: all of ours, by position, and the wishes are not to be sent.
 *
 * ENOTFOUND: a rail named that the peer has not, or nothing to pair. EUNSUPPORTED: a rail named, and no choice. */
PENSTOCK_CHECKED int rail_pair(const struct rail_devices *own, const struct rail_listing *theirs,
                               struct rail_pairing *out, struct penstock_error *error);

/* The same where the peer lets one choose and does not say what there is: the rails that were named, and for the others
 * by position, those left out. Not "whichever": who builds one rail anew has to ask for the one that it had. */
void rail_pair_blindly(const struct rail_devices *own, struct rail_pairing *out);

#endif
