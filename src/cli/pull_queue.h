/* How far a pull is: the state of every chunk, what is to be done next, and the peer's digests. No I/O, no clock, no
 * lock: the caller serialises all calls. */
#ifndef PENSTOCK_CLI_PULL_QUEUE_H
#define PENSTOCK_CLI_PULL_QUEUE_H

#include "pull_plan.h"

enum pull_state {
    PULL_MISSING, /* to be fetched */
    PULL_CHECK,   /* on this disk; to be hashed */
    PULL_TAKEN,   /* a worker has it in hand */
    PULL_LANDED,  /* written; its digest not compared with the peer's (yet) */
    PULL_GOOD,    /* its digest is the peer's */
    PULL_STATES
};

enum pull_work {
    PULL_FETCH, /* ask the peer for it, write it */
    PULL_HASH,  /* read it where it lies, hash it */
    PULL_WAIT,  /* nothing now; there may be later */
    PULL_OVER,  /* every chunk is what it should be */
};

#define PULL_TRIES 3 /* of a chunk whose digest is not the peer's */

struct pull_job {
    enum pull_work work;
    size_t chunk;
    bool kept; /* PULL_HASH: in the file that already has its final name */
};

/* A piece of the peer's digests to ask for. */
struct pull_question {
    size_t file;
    uint64_t first, max;
};

struct pull_chunk;
struct pull_tally;

struct pull_queue {
    const struct pull_plan *plan;
    struct pull_chunk *chunks;
    struct pull_tally *tallies; /* one a file */
    uint64_t count[PULL_STATES], bytes[PULL_STATES];
    size_t next;       /* no chunk before it is MISSING or CHECK */
    size_t unanswered; /* the peer's digests of every file before it are known */
    bool verify;       /* compare digests, as far as the peer has any */
    bool no_digests;   /* it has none */
    bool versioned;    /* the peer names versions: what an earlier pull landed is the same model's */
    uint64_t damaged;  /* chunks that were asked for again */
};

PENSTOCK_CHECKED int pull_queue_init(struct pull_queue *queue, const struct pull_plan *plan, bool verify,
                                     bool versioned, struct penstock_error *error);
void pull_queue_fini(struct pull_queue *queue);

/* Before the first take. What an earlier pull landed; digest may be NULL: it was not computed. trusted: the bytes are
 * surely those that landed; else they are hashed first. */
void pull_queue_resume(struct pull_queue *queue, size_t chunk, const uint8_t *digest, bool trusted);
/* Before the first take. A file that has its final name already: every chunk is to be compared with the peer's, and if
 * one differs the whole file is fetched. */
void pull_queue_keep(struct pull_queue *queue, size_t file);
/* The same, and it is known to be right. */
void pull_queue_done(struct pull_queue *queue, size_t file);
/* Whether file is (still) one of those two: nothing of it was fetched. */
bool pull_queue_kept(const struct pull_queue *queue, size_t file);

struct pull_job pull_queue_take(struct pull_queue *queue);
/* The job was not done; someone else is to do it. */
void pull_queue_give_back(struct pull_queue *queue, const struct pull_job *job);

/* The job was done: digest is what the bytes have, NULL where it was not asked for. *lost is set when the chunk is to
 * be fetched again after all. ECORRUPT: it does not match, and was fetched PULL_TRIES times. */
PENSTOCK_CHECKED int pull_queue_land(struct pull_queue *queue, const struct pull_job *job, const uint8_t *digest,
                                     bool *lost, struct penstock_error *error);

/* Whether the peer should be asked for digests now, and for which. Each question is answered once. */
bool pull_queue_question(struct pull_queue *queue, int64_t now_ns, struct pull_question *question);
/* code: 0 and n digests from question->first on; EREFUSED: the peer has none; else the question is asked again. Calls
 * lost for each chunk that is to be fetched again. Fails as pull_queue_land does. */
PENSTOCK_CHECKED int pull_queue_answer(struct pull_queue *queue, const struct pull_question *question, int code,
                                       const uint8_t *digests, uint64_t n, int64_t now_ns,
                                       void (*lost)(void *context, size_t chunk), void *context,
                                       struct penstock_error *error);

/* Every chunk was compared with the peer's digest, and matched. */
bool pull_queue_verified(const struct pull_queue *queue);

#endif
