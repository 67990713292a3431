/* One pull under way: what its workers share. The main thread sets it up, starts the workers, and shows progress. */
#ifndef PENSTOCK_CLI_PULL_H
#define PENSTOCK_CLI_PULL_H

#include <pthread.h>
#include <stdatomic.h>

#include "pull_journal.h"
#include "pull_plan.h"
#include "pull_queue.h"
#include "pull_rails.h"
#include "pull_target.h"

struct pull_options {
    const char *peer, *model;
    const char *output; /* NULL: by the model's name */
    const char **globs; /* --tensors; none: the whole model */
    size_t n_globs;
    unsigned connections;
    int64_t timeout_ns; /* without a byte of progress; 0: the library's own */
    enum penstock_transport transport;
    const char *rails; /* as the library takes them; NULL: its default */
    bool verify, json, verbose, quiet;
};

/* The fds of one file; -1: not open. */
struct pull_place {
    int temp;  /* what lands goes there */
    int final; /* a file with its final name, to be compared */
};

struct pull {
    const struct pull_options *options;
    struct penstock_catalogue *catalogue;
    struct pull_plan plan;
    struct pull_target target;
    struct pull_place *places; /* one a file */
    int over_fd;               /* an eventfd, readable from the end of the pull on: everyone waits on it as well */

    pthread_mutex_t lock; /* guards what follows; never held while bytes move */
    struct pull_queue queue;
    struct pull_journal journal;
    unsigned alive; /* workers */
    unsigned joined;
    bool over;
    int rc; /* of the whole pull; valid once it is over */
    struct penstock_error error;
    struct pull_rails rails; /* of connections that have ended; and which there are */

    _Atomic uint64_t landed_bytes, fetched_bytes;
};

struct pull_worker {
    struct pull *pull;
    struct penstock_session *session; /* the worker's, to free; NULL: it joins by itself */
    pthread_t thread;
};

/* A worker's main function: fetches, lands and checks until nothing is left or it cannot go on. */
void *pull_land(void *worker);

/* Ends the pull, if it has not ended: rc and error are its result. */
void pull_end(struct pull *pull, int rc, const struct penstock_error *error);

/* A session, waited for until stop_fd is readable: ECANCELED. catalogue may be NULL. */
PENSTOCK_CHECKED int pull_session_open(const struct pull_options *options, struct penstock_catalogue *catalogue,
                                       int stop_fd, struct penstock_session **session, struct penstock_error *error);

/* The whole of the command. What is in the end to be said: */
struct pull_result {
    uint64_t bytes, fetched_bytes, resumed_bytes, files;
    double seconds;
    bool verified, no_digests;
    bool resumable; /* it failed, and what landed is kept */
    unsigned connections;
    uint64_t damaged;
    struct pull_rails rails;
    char model[256], version[160], where[4096];
};
PENSTOCK_CHECKED int pull_run(const struct pull_options *options, struct pull_result *result,
                              struct penstock_error *error);

#endif
