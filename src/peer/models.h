/* The models that a peer has. A place is a directory that may be asked for; a model is one version of what lies there:
 * immutable, counted, mapped, shared by every connection that uses it. */
#ifndef PENSTOCK_PEER_MODELS_H
#define PENSTOCK_PEER_MODELS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/vec.h"
#include "model/digest.h"
#include "model/stage.h"
#include "registration.h"
#include "residency/ledger.h"
#include "transfer.h"

struct peer_model {
    struct base_list node; /* in peer_models.live */
    struct model_staged staged;
    struct peer_file *files; /* shards first, then files: as requests count them */
    size_t n_files;
    uint64_t bytes; /* of all files */
    struct residency_reservation reservation;
    struct peer_registration registration;
    struct base_buf reply; /* the manifest with its length before it, as it goes out */
    struct model_digests digests;
    char *id;           /* what a model request may say */
    int64_t staging_ns; /* how long it took */
    unsigned refs;
    _Atomic uint64_t warmed_bytes; /* the worker's */
    _Atomic bool rewritten;        /* a file changed in place: what was promised under this version is lost */
    _Atomic bool replaced;         /* newcomers get another version */
};

struct peer_place {
    char *directory;            /* absolute: requests name it as the manifest does */
    char *name;                 /* NULL: none was given */
    char *own_name;             /* the directory's own: "org/name" in a Hugging Face cache */
    bool on_demand;             /* staged because a client named its path; dropped when nobody uses it */
    unsigned users;             /* threads between finding the place and being done with it */
    pthread_mutex_t staging;    /* held over I/O: one thread looks or stages, the others wait for what it finds */
    struct peer_model *current; /* NULL: to be staged for whoever comes next */
};

struct peer_models_options {
    bool allow_any_path;
    struct model_stage_options stage;
    struct residency_ledger *ledger; /* which models are charged to */
    /* A model was staged. To keep it, take a reference. */
    void (*staged)(void *context, struct peer_model *model);
    /* A model was found rewritten: connections that use it are to be closed. */
    void (*rewritten)(void *context, struct peer_model *model);
    void *context;
};

/* Lock order: a place's staging, then lock. */
struct peer_models {
    struct peer_models_options options;
    pthread_mutex_t lock; /* places, live, users, current, refs; never held over I/O */
    BASE_VEC(struct peer_place *) places;
    struct base_list live;
    bool announced; /* what is staged from now on is logged at once */
};

void peer_models_init(struct peer_models *models, const struct peer_models_options *options);
/* Everyone has given back their references. */
void peer_models_fini(struct peer_models *models);

/* Adds a place and stages it. EINVAL: the name is taken. */
PENSTOCK_CHECKED int peer_models_add(struct peer_models *models, const char *name, const char *directory,
                                     struct penstock_error *error);

/* Logs what is staged: once the peer listens. */
void peer_models_announce(struct peer_models *models);

/* The first model that a request names (protocol 1.5), as its files are now: staged anew where they changed. ENOTFOUND,
 * or the error of staging, which needs a large stack. */
PENSTOCK_CHECKED int peer_models_get(struct peer_models *models, const char *request, struct peer_model **model,
                                     struct penstock_error *error);
void peer_models_ref(struct peer_models *models, struct peer_model *model);
void peer_models_unref(struct peer_models *models, struct peer_model *model);

/* Whether nobody but the caller, who has a reference, has a use for the model. */
bool peer_models_unwanted(struct peer_models *models, const struct peer_model *model);

/* Bytes that were warmed, of all models that still have a user. */
uint64_t peer_models_warmed(struct peer_models *models);

/* The answer to penstock:models (protocol 2.5), without its length. rails may be NULL: none. */
PENSTOCK_CHECKED int peer_models_list(struct peer_models *models, const struct rail_devices *rails,
                                      struct base_buf *json, struct penstock_error *error);

/* To walk the live models: gives model back, and returns the one after it with a reference; NULL for the first and
 * after the last. */
struct peer_model *peer_models_next(struct peer_models *models, struct peer_model *model);

/* Looks at the files of every model in use. */
void peer_models_watch(struct peer_models *models);

#endif
