/* The models that a peer has. A place is a directory that may be asked for; a model is one version of what lies there.
 */
#ifndef PENSTOCK_PEER_MODELS_H
#define PENSTOCK_PEER_MODELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"
#include "model/digest.h"
#include "model/stage.h"
#include "residency/ledger.h"
#include "served.h"

struct peer_model {
    struct peer_served served; /* its files: shards first, then files, as requests count them */
    struct model_staged staged;
    const struct model_stage_options *options; /* it was staged with, and is looked at with */
    struct model_digests digests;
};

static inline struct peer_model *peer_model_of(struct peer_served *served)
{
    return base_list_entry(served, struct peer_model, served);
}

struct peer_place {
    struct peer_source source;
    struct peer_models *models;
    char *directory; /* absolute: requests name it as the manifest does */
    char *name;      /* NULL: none was given */
    char *own_name;  /* the directory's own: "org/name" in a Hugging Face cache */
    bool on_demand;  /* staged because a client named its path; dropped when nobody uses it */
    unsigned users;  /* threads between finding the place and being done with it */
};

struct peer_models_options {
    bool allow_any_path;
    struct model_stage_options stage;
    struct residency_ledger *ledger; /* which models are charged to */
    struct peer_live *live;          /* where they are kept, with all else that is served out of files */
};

struct peer_models {
    struct peer_models_options options;
    BASE_VEC(struct peer_place *) places; /* and their users, under live->lock */
};

void peer_models_init(struct peer_models *models, const struct peer_models_options *options);
/* Everyone has given back their references. */
void peer_models_fini(struct peer_models *models);

/* Adds a place and stages it. EINVAL: the name is taken. */
PENSTOCK_CHECKED int peer_models_add(struct peer_models *models, const char *name, const char *directory,
                                     struct penstock_error *error);

/* The first model that a request names (protocol 1.5), as its files are now: staged anew where they changed. ENOTFOUND,
 * or the error of staging, which needs a large stack. */
PENSTOCK_CHECKED int peer_models_get(struct peer_models *models, const char *request, struct peer_model **model,
                                     struct penstock_error *error);
/* The answer to penstock:models (protocol 2.5), without its length. rails may be NULL: none. */
PENSTOCK_CHECKED int peer_models_list(struct peer_models *models, const struct rail_devices *rails,
                                      struct base_buf *json, struct penstock_error *error);

#endif
