/* A catalogue from inside: a manifest with a count. */
#ifndef PENSTOCK_CLIENT_WEIGHTS_CATALOGUE_H
#define PENSTOCK_CLIENT_WEIGHTS_CATALOGUE_H

#include <stdatomic.h>

#include "model/manifest.h"

struct penstock_catalogue {
    atomic_uint refs;
    struct model_manifest manifest; /* immutable: any thread may read it */
};

/* json has MODEL_JSON_PADDING bytes behind it, within capacity. */
PENSTOCK_CHECKED int client_catalogue_read(const char *json, size_t len, size_t capacity,
                                           struct penstock_catalogue **catalogue, struct penstock_error *error);

#endif
