/* Committed memory and its ceiling: who may map or pin so much, asked before it is done. It counts; it allocates
 * nothing. Thread-safe. */
#ifndef PENSTOCK_RESIDENCY_LEDGER_H
#define PENSTOCK_RESIDENCY_LEDGER_H

#include <pthread.h>
#include <stdint.h>

#include <penstock/error.h>

#include "base/list.h"

struct residency_ledger {
    pthread_mutex_t lock; /* a leaf */
    uint64_t limit_bytes; /* 0: none */
    uint64_t used_bytes;
    struct base_list reservations;
};

#define RESIDENCY_WHAT_MAX 64

/* One user's share, on the memory of whoever holds it. Zeroed: none. */
struct residency_reservation {
    struct base_list node;
    struct residency_ledger *ledger; /* NULL: none */
    uint64_t bytes;
    char what[RESIDENCY_WHAT_MAX];
};

/* limit_bytes 0: it only counts. */
void residency_ledger_init(struct residency_ledger *ledger, uint64_t limit_bytes);
/* Everything has been given back. */
void residency_ledger_fini(struct residency_ledger *ledger);

/* Takes bytes for what ("org/name", copied, cut). ELIMIT: they do not fit, and nothing is taken; the words say how much
 * is asked for, and what has the rest. */
PENSTOCK_CHECKED int residency_reserve(struct residency_ledger *ledger, struct residency_reservation *reservation,
                                       uint64_t bytes, const char *what, struct penstock_error *error);

/* Gives it back; one that was never taken, or is given back already, does no harm. */
void residency_release(struct residency_reservation *reservation);

uint64_t residency_used(struct residency_ledger *ledger);

#endif
