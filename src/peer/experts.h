/* The expert store that a peer serves: one directory (the frozen handshake names none), and the version of it that
 * newcomers get. */
#ifndef PENSTOCK_PEER_EXPERTS_H
#define PENSTOCK_PEER_EXPERTS_H

#include "model/experts/store.h"
#include "served.h"

struct peer_store {
    struct peer_served served; /* its files: a layer each */
    struct model_store store;
    char (*names)[MODEL_LAYER_NAME_BYTES]; /* of its files */
};

struct peer_experts {
    struct peer_source source;
    const char *directory; /* the operator's; NULL: none is served */
    const struct model_stage_options *stage;
    struct residency_ledger *ledger;
};

static inline struct peer_store *peer_store_of(struct peer_served *served)
{
    return base_list_entry(served, struct peer_store, served);
}

/* What it points to outlives it. */
void peer_experts_init(struct peer_experts *experts, const char *directory, const struct model_stage_options *stage,
                       struct residency_ledger *ledger, struct peer_live *live);
/* Everyone has given back their references. */
void peer_experts_fini(struct peer_experts *experts);

/* A reference to the store as its files are now. Needs a large stack. */
PENSTOCK_CHECKED int peer_experts_get(struct peer_experts *experts, struct peer_served **out,
                                      struct penstock_error *error);

#endif
