/* One staged model, from its directory to mappings and a manifest that is ready to be sent; and back. */
#ifndef PENSTOCK_PEER_STAGED_H
#define PENSTOCK_PEER_STAGED_H

#include "models.h"

/* Blocks for as long as staging takes. The model has one reference. name NULL: the directory's own. The bytes of its
 * files are taken from the ledger before they are mapped, and given back when it is freed; ELIMIT: they do not fit.
 * options outlive the model. */
PENSTOCK_CHECKED int peer_staged_new(const char *directory, const char *name, const struct peer_models_options *options,
                                     struct peer_model **out, struct penstock_error *error);

#endif
