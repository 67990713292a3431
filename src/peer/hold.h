/* The pages of files that RDMA serves from, and how they are held in memory. */
#ifndef PENSTOCK_PEER_HOLD_H
#define PENSTOCK_PEER_HOLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

#include "regions.h"
#include "residency/ledger.h"

struct peer_served;

enum peer_hold_how {
    PEER_HOLD_AUTO, /* an operator's choice only: registration.c finds out which */
    PEER_HOLD_MAP,  /* the file's own pages, MAP_SHARED and read-only: Linux registers them from 6.2 on */
    PEER_HOLD_COPY, /* anonymous memory that the file is read into */
    PEER_HOLD_HUGE, /* the same on huge pages */
};

/* Never a private mapping of a file: registering one copies every page of it unseen. */

#define PEER_HUGE_PAGE_BYTES (UINT64_C(2) << 20)

struct peer_hold {
    enum peer_hold_how how;
    struct peer_region *regions; /* one a file */
    size_t n;
    struct residency_reservation reservation; /* of a copy, beside the files' own */
    _Atomic bool through_cache;               /* read without O_DIRECT, which the file system does not have */
};

/* "auto", "map", "copy", "huge". */
const char *peer_hold_name(enum peer_hold_how how);
/* False: none of them. */
bool peer_hold_parse(const char *text, enum peer_hold_how *how);

/* What a copy takes, in pages of that size. */
uint64_t peer_hold_bytes(const struct peer_served *served, uint64_t page_bytes);

/* how is not AUTO. A copy is read in by several threads, and is charged to ledger before it is made: ELIMIT. ENOMEM:
 * there is not so much free memory, or there are not so many huge pages. ESTALE: a file was changed meanwhile.
 * ECANCELED: *stop was set. On failure nothing is held. */
PENSTOCK_CHECKED int peer_hold_make(struct peer_hold *hold, const struct peer_served *served, enum peer_hold_how how,
                                    struct residency_ledger *ledger, const _Atomic bool *stop,
                                    struct penstock_error *error);

/* Makes a copy read-only. To be called once it is registered, and before a client learns of it: Linux 6.1 registers no
 * huge pages that cannot be written. */
PENSTOCK_CHECKED int peer_hold_seal(struct peer_hold *hold, struct penstock_error *error);

/* Nothing is registered any more. One that was never made does no harm, if it is zeroed. */
void peer_hold_fini(struct peer_hold *hold);

#endif
