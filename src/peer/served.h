/* What is served out of files. A source is a directory that clients may want; a served thing is one version of what
 * lies there: immutable, counted, mapped, shared by every connection that uses it. Models and expert stores are such.
 */
#ifndef PENSTOCK_PEER_SERVED_H
#define PENSTOCK_PEER_SERVED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/vec.h"
#include "model/stage.h"
#include "registration.h"
#include "residency/ledger.h"
#include "transfer.h"

struct peer_served;
struct peer_worker;

/* What a tier knows of its own. */
struct peer_served_ops {
    const char *unit; /* "shard": what an RDMA client counts as a layer, for words */
    enum model_change (*changed)(const struct peer_served *served);
    void (*hash)(struct peer_worker *worker, struct peer_served *served); /* NULL: it has no digests */
    void (*log_staged)(const struct peer_served *served);
    void (*free)(struct peer_served *served);
};

struct peer_served {
    const struct peer_served_ops *ops;
    struct peer_live *live;
    struct base_list node;   /* in live->list */
    struct peer_file *files; /* those that RDMA reaches first */
    size_t n_files, n_regions;
    uint64_t bytes; /* of all files */
    struct residency_reservation reservation;
    struct peer_registration registration;
    struct base_buf reply; /* the manifest with its length before it, as it goes out */
    char *id;              /* what the log calls it */
    int64_t staging_ns;    /* how long it took */
    unsigned refs;
    _Atomic uint64_t warmed_bytes; /* the worker's */
    _Atomic bool rewritten;        /* a file changed in place: what was promised under this version is lost */
    _Atomic bool replaced;         /* newcomers get another version */
};

/* All that has a user. Lock order: a source's staging, then lock. */
struct peer_live {
    pthread_mutex_t lock; /* list, announced, refs, sources' current; never held over I/O */
    struct base_list list;
    bool announced; /* what is staged from now on is logged at once */
    /* Something was staged. To keep it, take a reference. */
    void (*staged)(void *context, struct peer_served *served);
    /* Something was found rewritten: connections that use it are to be closed. */
    void (*rewritten)(void *context, struct peer_served *served);
    void *context;
};

struct peer_source {
    struct peer_live *live;
    pthread_mutex_t staging;     /* held over I/O: one thread looks or stages, the others wait for what it finds */
    struct peer_served *current; /* NULL: to be staged for whoever comes next */
};

/* Stages what the source has now. The new thing has one reference, and is not live yet. */
typedef int peer_stage_fn(struct peer_source *source, struct peer_served **out, struct penstock_error *error);

/* staged and rewritten may be NULL. */
void peer_live_init(struct peer_live *live, void (*staged)(void *context, struct peer_served *served),
                    void (*rewritten)(void *context, struct peer_served *served), void *context);
void peer_live_fini(struct peer_live *live);

/* Logs what is staged: once the peer listens. */
void peer_live_announce(struct peer_live *live);
/* Bytes that were warmed, of all that is live. */
uint64_t peer_live_warmed(struct peer_live *live);
/* To walk what is live: gives served back, and returns the one after it with a reference; NULL for the first and after
 * the last. */
struct peer_served *peer_live_next(struct peer_live *live, struct peer_served *served);
/* Looks at the files of all that is in use. */
void peer_live_watch(struct peer_live *live);

/* One reference, nothing of files yet. */
void peer_served_init(struct peer_served *served, const struct peer_served_ops *ops, struct peer_live *live);
/* Maps n open files, and takes their bytes from ledger before: ELIMIT, they do not fit. names[i] outlives it. */
PENSTOCK_CHECKED int peer_served_map(struct peer_served *served, const struct model_opened *opened,
                                     const char *const *names, size_t n, struct residency_ledger *ledger,
                                     struct penstock_error *error);
/* Nobody uses it: what RDMA reaches is taken back, then the mappings go. The files are the tier's to close. */
void peer_served_fini(struct peer_served *served);

void peer_served_ref(struct peer_served *served);
void peer_served_unref(struct peer_served *served);
/* Whether nobody but the caller, who has a reference, has a use for it. */
bool peer_served_unwanted(struct peer_served *served);

void peer_source_init(struct peer_source *source, struct peer_live *live);
/* Everyone has given back their references. */
void peer_source_fini(struct peer_source *source);

/* A reference to what the source has now, staged anew where its files have changed. Without may_wait, what it had last
 * while another thread is staging: ENOTFOUND where that is nothing. */
PENSTOCK_CHECKED int peer_source_get(struct peer_source *source, peer_stage_fn *stage, bool may_wait,
                                     struct peer_served **out, struct penstock_error *error);

#endif
