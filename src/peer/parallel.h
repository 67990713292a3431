/* Work in pieces, done by a few threads that are waited for. */
#ifndef PENSTOCK_PEER_PARALLEL_H
#define PENSTOCK_PEER_PARALLEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <penstock/error.h>

struct peer_pieces {
    size_t n;
    int (*run)(void *context, size_t piece, struct penstock_error *error); /* from any of the threads */
    void *context;
    const _Atomic bool *stop; /* once set, no piece is begun. NULL: never */
};

/* Every piece, in order, the calling thread being one of at most n_threads; those that cannot be started are done
 * without. After one has failed none is begun: its error is what is returned. ECANCELED: stopped. */
PENSTOCK_CHECKED int peer_parallel(const struct peer_pieces *pieces, size_t n_threads, struct penstock_error *error);

#endif
