/* The worker: one thread of low priority that hashes what is served and brings it into memory. */
#ifndef PENSTOCK_PEER_WORKER_H
#define PENSTOCK_PEER_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "served.h"

struct peer_worker {
    struct peer_live *live;
    bool warm, hash;
    pthread_t thread;
    pthread_mutex_t lock; /* queue; a leaf but for live->lock, which may be taken with it held */
    pthread_cond_t more;
    BASE_VEC(struct peer_served *) queue; /* with a reference each */
    _Atomic bool stop;
};

PENSTOCK_CHECKED int peer_worker_init(struct peer_worker *worker, struct peer_live *live, bool warm, bool hash,
                                      struct penstock_error *error);
/* Stops within one chunk's time; digests known so far are kept. */
void peer_worker_fini(struct peer_worker *worker);

/* Queues what was staged, and takes a reference. */
void peer_worker_push(struct peer_worker *worker, struct peer_served *served);

/* All of it from beginning to end, on the calling thread: what the worker's does for each. */
void peer_worker_do(struct peer_worker *worker, struct peer_served *served);

/* ---- for what the worker does ---- */

#define PEER_JOB_TELL_NS (10 * BASE_SECOND_NS) /* how often its progress is logged */

/* How the work on one thing goes. */
struct peer_job {
    struct peer_worker *worker;
    struct peer_served *served;
    const char *doing; /* "hashed" */
    uint64_t done_bytes;
    int64_t tell_ns;
};

/* Whether it is not wanted any more. */
bool peer_job_stopped(const struct peer_job *job);
void peer_job_progress(struct peer_job *job, uint64_t bytes);

#endif
