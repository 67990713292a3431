/* What RDMA clients of a model or a store reach: its files as memory regions, REMOTE_READ and no more. Made once a
 * version, shared by its connections, freed with it, before the memory. */
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

struct peer_served;

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
    _Atomic bool copied;       /* the files are, or are being, held as a copy */

    /* What follows is the making thread's, and then does not change until the version is freed. */
    struct peer_hold hold;
    struct peer_regions regions;
};

void peer_registration_init(struct peer_registration *registration);
void peer_registration_fini(struct peer_registration *registration);

/* Makes the registration, or waits for whoever does. 0: its regions are there for as long as the caller has
 * its reference to it. Else it is served over TCP only: EUNSUPPORTED or ELIMIT for good, other errors
 * perhaps not the next time. What was made or why it could not be is logged once. Wants a large stack. */
PENSTOCK_CHECKED int peer_registration_want(struct peer_served *served, const struct peer_registrar *registrar,
                                            struct penstock_error *error);

/* Whether its pages are registered now, and so cannot be taken back by the kernel. */
bool peer_registration_is_ready(struct peer_registration *registration);

#endif
