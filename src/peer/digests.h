/* Digests of a model's files (protocol 2.1), which the worker computes and keeps for the next start. */
#ifndef PENSTOCK_PEER_DIGESTS_H
#define PENSTOCK_PEER_DIGESTS_H

#include "worker.h"

/* All that are not known yet; of a file that cannot be hashed, none from there on. */
void peer_digests_compute(struct peer_worker *worker, struct peer_served *served);

#endif
