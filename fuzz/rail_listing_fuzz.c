#include <stdlib.h>
#include <string.h>

#include "rail/pair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A peer's list, and own rails that have to be paired with whatever it says. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct rail_devices own = { .n = 3 };
    struct json_doc doc;
    struct rail_listing listing;
    struct rail_pairing pairing;
    struct penstock_error error = { 0 };
    for (size_t i = 0; i < own.n; i++) {
        own.ports[i].peer_rail = PENSTOCK_PEER_RAIL_ANY;
        own.ports[i].gid[10] = own.ports[i].gid[11] = i < 2 ? 0xFF : 0;
        own.ports[i].gid[15] = (uint8_t)i;
    }
    if (json_parse((const char *)data, len, &doc, NULL) != 0)
        return 0;
    int code = rail_listing_read(&doc.root, &listing, &error);
    json_doc_fini(&doc);
    if (code) {
        if (!*error.message)
            abort();
        return 0;
    }
    if (listing.n > PENSTOCK_RAILS_MAX)
        abort();
    for (size_t i = 0; i < listing.n; i++)
        if (listing.at[i].mtu < 1 || listing.at[i].mtu > 5 || listing.at[i].index == PENSTOCK_PEER_RAIL_ANY ||
            strnlen(listing.at[i].device, VERBS_NAME_MAX) == VERBS_NAME_MAX)
            abort();
    code = rail_pair(&own, &listing, &pairing, NULL);
    if (code == 0 && (pairing.n == 0 || pairing.n > own.n || pairing.n > listing.n))
        abort();
    return 0;
}
