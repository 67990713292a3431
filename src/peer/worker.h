/* The worker: one thread of low priority that hashes what is served and brings it into memory. */
#ifndef PENSTOCK_PEER_WORKER_H
#define PENSTOCK_PEER_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "models.h"

struct peer_worker {
    struct peer_models *models;
    bool warm, hash;
    pthread_t thread;
    pthread_mutex_t lock; /* queue; a leaf but for models->lock, which may be taken with it held */
    pthread_cond_t more;
    BASE_VEC(struct peer_model *) queue; /* with a reference each */
    _Atomic bool stop;
};

PENSTOCK_CHECKED int peer_worker_init(struct peer_worker *worker, struct peer_models *models, bool warm, bool hash,
                                      struct penstock_error *error);
/* Stops within one chunk's time; digests known so far are kept. */
void peer_worker_fini(struct peer_worker *worker);

/* Queues a model, and takes a reference. */
void peer_worker_push(struct peer_worker *worker, struct peer_model *model);

/* One model from beginning to end, on the calling thread: what the worker's does for each. */
void peer_worker_do(struct peer_worker *worker, struct peer_model *model);

#endif
