/* What RDMA clients of a model reach: a protection domain and a memory region a shard on every device that has rails.
 * Made once a model, shared by its connections, freed with the model, before the memory. */
#ifndef PENSTOCK_PEER_REGISTRATION_H
#define PENSTOCK_PEER_REGISTRATION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "complain.h"
#include "hold.h"
#include "rail/set.h"

/* What registrations are made with and for: the daemon has one. */
struct peer_registrar {
    const struct rail_devices *rails; /* n 0: there is no RDMA here */
    enum peer_hold_how hold;
    struct residency_ledger *ledger;
    struct peer_complaints *complaints;
    const _Atomic bool *stop; /* once set, none is begun or gone on with */
};

/* One device, whatever the number of its rails. */
struct peer_registered {
    struct verbs_device *device;
    struct verbs_pd *pd;            /* the model's own: clients of another cannot reach through it */
    struct verbs_mr **mrs;          /* of each shard; REMOTE_READ and no more */
    struct penstock_layer *regions; /* the same as clients are told */
};

enum peer_registration_state {
    PEER_REGISTRATION_NONE,
    PEER_REGISTRATION_MAKING, /* by one thread; the others wait */
    PEER_REGISTRATION_READY,
    PEER_REGISTRATION_REFUSED, /* for good */
};

struct peer_registration {
    pthread_mutex_t lock;   /* state, why; a leaf */
    pthread_cond_t settled; /* state is no longer MAKING */
    enum peer_registration_state state;
    struct penstock_error why; /* REFUSED */
    _Atomic bool copied;       /* the shards are, or are being, held as a copy */

    /* What follows is the making thread's, and then does not change until the model is freed. */
    struct peer_hold hold;
    struct peer_registered devices[PENSTOCK_RAILS_MAX];
    size_t n_devices;
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX];     /* by rail, as struct rail_set_config wants them */
    struct rail_table tables[PENSTOCK_RAILS_MAX]; /* the same */
};

void peer_registration_init(struct peer_registration *registration);
void peer_registration_fini(struct peer_registration *registration);

/* Makes the model's registration, or waits for whoever does. 0: pds and tables are there for as long as the caller has
 * its reference to the model. Else the model is served over TCP only: EUNSUPPORTED or ELIMIT for good, other errors
 * perhaps not the next time. What was made or why it could not be is logged once. Wants a large stack. */
PENSTOCK_CHECKED int peer_registration_want(struct peer_model *model, const struct peer_registrar *registrar,
                                            struct penstock_error *error);

/* Whether the model's pages are registered now, and so cannot be taken back by the kernel. */
bool peer_registration_is_ready(struct peer_registration *registration);

#endif
